// The state machine that all tool call formats share: text, a mark that opens a call, the call,
// what may follow it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/chat/call_format.h"
#include "frontend/chat/call_stream.h"
#include "frontend/chat/reply_parser.h"

namespace penstock {

class MarkedParser : public ReplyParser {
 public:
  // types: the JSON types of the tools' parameters; null: not known. constrained_answer: as
  // ReplyParserOptions has it.
  MarkedParser(const CallFormat& format, std::shared_ptr<const ParameterTypes> types,
               bool constrained_answer = false);
  ReplyPart push(std::string_view text) override;
  ReplyPart finish(bool cut) override;

 private:
  enum class State { kStart, kText, kCall, kAfterCall, kOnlyText };

  void run(ReplyPart& out, bool at_end);
  bool step(ReplyPart& out, bool at_end);  // false: more text is needed
  bool step_text(ReplyPart& out, bool at_end);
  bool step_call(ReplyPart& out, bool at_end);
  bool step_stream(ReplyPart& out, bool at_end);
  bool step_whole(ReplyPart& out, bool at_end);
  bool refuse_call(ReplyPart& out);
  bool take_calls(CallText read, ReplyPart& out);
  bool opens_bare() const;
  // Returns where a line of the buffer begins with the character of calls without a mark; npos: none
  // does.
  size_t bare_line() const;
  bool step_between(bool at_end);  // the step of states kStart and kAfterCall
  void open_call(size_t mark_size);
  void emit(ReplyPart& out, std::string_view text);
  // Emits the first n bytes of the buffer and removes them.
  void pass(ReplyPart& out, size_t n);
  void to_text();

  const CallFormat& format_;
  // marks that are not part of the text: n_text_marks_ around text, then those that open calls
  std::vector<std::string> marks_;
  size_t n_text_marks_ = 0;
  std::shared_ptr<const ParameterTypes> types_;
  State state_;
  std::string buffer_;  // text that may still become a mark or a call
  // white space that is text only when text follows
  std::string space_;
  std::string mark_text_;   // kCall: the opening mark as it came
  bool at_line_ = false;    // the buffer stands at the start of a line that is not the first one
  bool line_call_ = false;  // kCall: the call was opened there, without a mark
  const bool constrained_answer_;
  std::unique_ptr<CallStream> stream_;  // kCall: null if the call is read as a whole
  CallScan scan_;
};

// Returns the position of the first mark in text and its index in `marks`; position npos: there is
// none. Of several marks at one position the first of the list wins.
std::pair<size_t, size_t> first_mark(std::string_view text, const std::vector<std::string>& marks);
// Returns the number of bytes at the end of text that may still become one of the marks.
size_t held_back(std::string_view text, const std::vector<std::string>& marks);
// The same of a text that was cut off there, where that is certainly no text: at least two bytes of a
// mark that does not begin with a letter.
size_t begun_mark(std::string_view text, const std::vector<std::string>& marks);

// Returns the position after the JSON value that starts at `start`, or nullopt when its end has not
// come. python: strings may have single quotes.
std::optional<size_t> find_value_end(std::string_view text, size_t start, CallScan& scan,
                                     bool python = false);

// Bytes of a reply that may be read again with every piece of it, while it is open what they are.
constexpr size_t kMostUndecided = 4096;

size_t skip_space(std::string_view text, size_t start = 0);
// Skips at most kMostUndecided bytes, so that what waits for the end of white space decides where
// there is more of it.
size_t skip_some_space(std::string_view text, size_t start = 0);
bool is_space_only(std::string_view text);
// Whether text is a proper prefix of mark.
bool may_become(std::string_view text, std::string_view mark);
bool is_function_name(std::string_view text);

// Reads {"name": …, "arguments" or "parameters": {…}}, {"function": {…}} and lists of them; nullopt
// for anything else.
std::optional<std::vector<ToolCall>> calls_of_json(std::string_view text);
// Whether JSON is an object of a name and its arguments and nothing else, or a list of them; true for
// what is no JSON.
bool is_only_call(std::string_view text);
// Returns {"name": arguments} as a call; nullopt for anything else.
std::optional<ToolCall> keyed_call(const nlohmann::ordered_json& json);
// Returns the text of a JSON object of arguments, normalized; nullopt when `text` is none.
std::optional<std::string> arguments_of_json(std::string_view text);
// Returns a Python literal as JSON; nullopt when `text` is none.
std::optional<nlohmann::ordered_json> python_value(std::string_view text);
// Returns the value of a parameter that is written without quotes: JSON if it has an expected type,
// else a string.
nlohmann::ordered_json parameter_value(std::string_view raw, JsonTypes types);
// Whether parameter_value() returns a string for every text with this beginning. REQUIRES: types
// has kString.
bool is_parameter_text(std::string_view begun, JsonTypes types);

// The ways in which calls are read.
extern const CallReading kJsonCalls;     // one JSON call, or a list of them
extern const CallReading kJsonLines;     // JSON calls one after the other
extern const CallReading kMistralCalls;  // a list, or name and arguments
extern const CallReading kKeyedCalls;    // [{"name": {arguments}}, …]
extern const CallReading kNamedCalls;    // a line with the name, then arguments
// one call after a mark, by the writings of the format
extern const CallReading kWrittenCalls;
extern const CallReading kPythonCalls;
extern const CallReading kPythonLines;   // without brackets, up to </function_calls>
extern const CallReading kFencedPython;  // in a block of code, up to <|tool_call_end|>
extern const CallReading kGemma4Calls, kFunctionGemmaCalls;

}  // namespace penstock
