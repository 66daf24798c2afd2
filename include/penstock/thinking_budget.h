// Limit on the reasoning tokens of a reply: what vLLM calls thinking_token_budget.
#pragma once
#include <memory>
#include <vector>

#include "penstock/types.h"

namespace penstock {

// The tokens that may stand for the first and the last token of a mark of several: text around a mark
// runs together with it, as in ".</" + "think" + ">\n". Ascending.
struct MarkEdges {
  std::vector<TokenId> first, last;
};

// After max_tokens tokens of reasoning the closing mark is forced, token by token. A part of the
// mark that the model has written already is not repeated; a reply without reasoning is not
// changed.
struct ThinkingBudget {
  // most tokens of reasoning, without the marks; >= 0
  int max_tokens = 0;
  // the opening mark; may only be empty with starts_inside
  std::vector<TokenId> open;
  std::vector<TokenId> close;  // the closing mark; at least one token
  bool starts_inside = false;  // the prompt ends inside the reasoning
  // of marks of several tokens; null: a mark is found by its own tokens only
  std::shared_ptr<const MarkEdges> open_edges = nullptr, close_edges = nullptr;
};

}  // namespace penstock
