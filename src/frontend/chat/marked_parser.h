// The state machine that all tool call formats share: text, a mark that opens a call, the call, what may
// follow it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/chat/reply_parser.h"

namespace penstock {

// Where a value that is read piece by piece stands, so that no character is looked at twice.
struct CallScan {
  size_t position = 0;
  int depth = 0;
  char quote = 0;
  bool escaped = false;
};

struct CallText {
  enum class Kind { kMore, kNotACall, kCalls };
  Kind kind = Kind::kMore;
  size_t consumed = 0;  // kCalls: how much of the text the calls take
  std::vector<ToolCall> calls;

  static CallText more() { return {}; }
  static CallText not_a_call() { return {Kind::kNotACall, 0, {}}; }
};

// text: what follows the opening mark number `mark` (a bare opening: everything). Must answer from a prefix
// of the text as it would from all of it: kMore until the prefix decides. scan is zero at first and kept
// between calls.
using ReadCalls = CallText (*)(std::string_view text, size_t mark, CallScan& scan);

struct CallFormat {
  std::vector<std::string> open;   // marks that open a call
  std::vector<std::string> close;  // dropped behind a call, as white space is
  char bare = 0;                   // opens a call without a mark, at the start of the reply or behind a call
  bool start_only = false;         // a call stands at the start of the reply or behind a call only
  ReadCalls read = nullptr;
  bool keeps_space = false;  // white space around calls is text too
};

class MarkedParser : public ReplyParser {
 public:
  explicit MarkedParser(const CallFormat& format)
      : format_(format), state_(format.keeps_space ? State::kText : State::kStart) {}
  ReplyPart push(std::string_view text) override;
  ReplyPart finish() override;

 private:
  enum class State { kStart, kText, kCall, kAfterCall, kOnlyText };

  void run(ReplyPart& out, bool at_end);
  bool step(ReplyPart& out, bool at_end);  // false: needs more text
  bool step_text(ReplyPart& out, bool at_end);
  bool step_call(ReplyPart& out, bool at_end);
  bool step_between(bool at_end);  // kStart and kAfterCall
  void open_call(size_t mark_size, size_t mark);
  void emit(ReplyPart& out, std::string_view text);
  void to_text();

  const CallFormat& format_;
  State state_;
  std::string buffer_;     // not yet decided
  std::string space_;      // white space that is text only when text follows
  std::string mark_text_;  // kCall: the opening mark as it came
  size_t mark_ = 0;
  CallScan scan_;
};

// Reads on to the end of a JSON value (or, with single quotes, of a Python one) that starts at `start`; the
// position behind it, or nullopt.
std::optional<size_t> find_value_end(std::string_view text, size_t start, CallScan& scan,
                                     bool python = false);

size_t skip_space(std::string_view text, size_t start = 0);
bool is_space_only(std::string_view text);
// Whether text is a proper prefix of mark.
bool may_become(std::string_view text, std::string_view mark);
bool is_function_name(std::string_view text);

// {"name": …, "arguments" or "parameters": {…}}, {"function": {…}} and lists of them; nullopt for anything
// else.
std::optional<std::vector<ToolCall>> calls_of_json(std::string_view text);
// The arguments as a JSON object's text, from the text of one.
std::optional<std::string> arguments_of_json(std::string_view text);

// One function per family (json_calls.cc, python_calls.cc, tagged_calls.cc).
CallText read_json_calls(std::string_view text, size_t mark, CallScan& scan);
CallText read_mistral_calls(std::string_view text, size_t mark, CallScan& scan);
CallText read_python_calls(std::string_view text, size_t mark, CallScan& scan);
CallText read_function_tag(std::string_view text, size_t mark, CallScan& scan);
CallText read_parameter_tags(std::string_view text, size_t mark, CallScan& scan);
CallText read_deepseek_call(std::string_view text, size_t mark, CallScan& scan);
CallText read_kimi_call(std::string_view text, size_t mark, CallScan& scan);

}  // namespace penstock
