// The state machine that all tool call formats share: text, a mark that opens a call, the call, what may
// follow it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/chat/call_format.h"
#include "frontend/chat/reply_parser.h"

namespace penstock {

class MarkedParser : public ReplyParser {
 public:
  // types: what is known about the tools' parameters; may be null.
  MarkedParser(const CallFormat& format, std::shared_ptr<const ParameterTypes> types);
  ReplyPart push(std::string_view text) override;
  ReplyPart finish() override;

 private:
  enum class State { kStart, kText, kCall, kAfterCall, kOnlyText };

  void run(ReplyPart& out, bool at_end);
  bool step(ReplyPart& out, bool at_end);  // false: needs more text
  bool step_text(ReplyPart& out, bool at_end);
  bool step_call(ReplyPart& out, bool at_end);
  bool step_between(bool at_end);  // kStart and kAfterCall
  void open_call(size_t mark_size);
  void emit(ReplyPart& out, std::string_view text);
  void to_text();

  const CallFormat& format_;
  std::vector<std::string> marks_;  // that are no text: those that open calls, then those around text
  std::shared_ptr<const ParameterTypes> types_;
  State state_;
  std::string buffer_;     // not yet decided
  std::string space_;      // white space that is text only when text follows
  std::string mark_text_;  // kCall: the opening mark as it came
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

CallText read_json_calls(std::string_view text, CallScan& scan);     // one, or a list of them
CallText read_json_lines(std::string_view text, CallScan& scan);     // one behind the other
CallText read_mistral_calls(std::string_view text, CallScan& scan);  // a list, or name and arguments
CallText read_python_calls(std::string_view text, CallScan& scan);
// One call behind the mark, by the writings of the format.
CallText read_written_call(const CallFormat& format, std::string_view mark, std::string_view text,
                           const ParameterTypes* types, CallScan& scan);

}  // namespace penstock
