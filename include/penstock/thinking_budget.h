// How long a reply may reason: what vLLM calls thinking_token_budget.
#pragma once
#include <vector>

#include "penstock/types.h"

namespace penstock {

// After max_tokens tokens of reasoning the marks that close it are forced, token by token. What the model has
// written of them by itself is not written twice, and a reply that never reasons is left alone.
struct ThinkingBudget {
  int max_tokens = 0;          // >= 0, of reasoning, without the marks
  std::vector<TokenId> open;   // the marks around reasoning; open may only be empty with starts_inside
  std::vector<TokenId> close;  // >= 1
  bool starts_inside = false;  // the prompt has opened it
};

}  // namespace penstock
