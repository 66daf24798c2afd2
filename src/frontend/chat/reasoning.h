// Splits the reasoning at the start of a reply from the answer.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "frontend/chat/reply_parser.h"

namespace penstock {

// White space around the reasoning and before the answer is dropped. A reply that ends inside its
// reasoning has no answer. A closing mark without an opening one also ends reasoning when
// starts_inside says that the prompt opened it. calls: marks that open a tool call; they end the
// reasoning too and stay in the text.
class ReasoningSplitter {
 public:
  ReasoningSplitter(const ReasoningRow& marks, bool starts_inside,
                    std::vector<std::string> calls = {});
  ReplyPart push(std::string_view text);
  ReplyPart finish(bool cut);  // as ReplyParser::finish()
  // Whether the reply began with reasoning.
  bool found() const { return found_; }

 private:
  enum class State { kStart, kReasoning, kBetween, kAnswer };
  bool step(ReplyPart& out, bool at_end);
  bool step_reasoning(ReplyPart& out, bool at_end);
  void reason(ReplyPart& out, std::string_view text);

  std::string open_, again_;
  std::vector<std::string> ends_;  // the closing mark, then marks of calls
  State state_;
  // the prompt opened the reasoning; an opening mark of the model is optional
  bool optional_open_;
  bool close_alone_;  // without thoughts the closing mark stands alone
  bool any_reasoning_ = false, found_ = false;
  std::string buffer_, space_;
};

}  // namespace penstock
