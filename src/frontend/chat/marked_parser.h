// The state machine that all tool call formats share: text, a mark that opens a call, the call, what may
// follow it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  bool take_calls(CallText read, ReplyPart& out);
  bool opens_bare() const;
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

// Where the first of the marks stands, and which; npos: none does. Of marks at one place the first of the list.
std::pair<size_t, size_t> first_mark(std::string_view text, const std::vector<std::string>& marks);
// Bytes at the end of text that may still become one of the marks.
size_t held_back(std::string_view text, const std::vector<std::string>& marks);

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
// A Python literal as JSON.
std::optional<nlohmann::ordered_json> python_value(std::string_view text);

CallText read_json_calls(std::string_view text, CallScan& scan);     // one, or a list of them
CallText read_json_lines(std::string_view text, CallScan& scan);     // one behind the other
CallText read_mistral_calls(std::string_view text, CallScan& scan);  // a list, or name and arguments
CallText read_keyed_calls(std::string_view text, CallScan& scan);    // [{"name": {arguments}}, …]
CallText read_named_call(std::string_view text, CallScan& scan);     // a line with the name, then arguments
CallText read_python_calls(std::string_view text, CallScan& scan);
CallText read_python_lines(std::string_view text,
                           CallScan& scan);  // without brackets, up to </function_calls>
CallText read_gemma4_call(std::string_view text, CallScan& scan);
CallText read_function_gemma_call(std::string_view text, CallScan& scan);
// One call behind the mark, by the writings of the format.
CallText read_written_call(const CallFormat& format, std::string_view mark, std::string_view text,
                           const ParameterTypes* types, CallScan& scan);

}  // namespace penstock
