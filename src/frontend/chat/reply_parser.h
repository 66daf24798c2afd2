// Splits a model's reply into reasoning, text for the user and tool calls. The pieces add up to the
// same reply however the text was cut, so the stream and the plain reply agree. What looks like a
// call but is none stays text; once a call's name is certain it is a call, its arguments are passed
// on even if they are no JSON, and what stands beside them is not.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "frontend/chat/call_format.h"
#include "penstock/chat.h"

namespace penstock {

// The parts that one more piece of text added. A call comes in pieces: first its name with an id
// (only if its format has ids that the chat template expects back), then its arguments as the model
// writes them.
struct ReplyPart {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  // calls[0] has no name: its arguments go on the last call of the part before
  bool continues = false;
  bool open = false;  // the last call goes on in the next part

  // Joins the pieces of calls.
  void append(ReplyPart more);
  // Begin a call, add to the arguments of the one that is open (in this part or before it), and end
  // it.
  void begin_call(std::string name, std::string id = {});
  void add_arguments(std::string_view text);
  void end_call();
  bool operator==(const ReplyPart&) const = default;
};

// One per reply; not thread-safe. The text must be whole UTF-8 and hold the texts of special tokens
// (markers are often special tokens).
class ReplyParser {
 public:
  virtual ~ReplyParser() = default;
  virtual ReplyPart push(std::string_view text) = 0;
  // Ends the reply and returns the rest. cut: it was cut off, so that the beginning of a mark at its
  // end is no text (begun_mark()).
  virtual ReplyPart finish(bool cut = false) = 0;
};

struct ToolParserRow {
  const char* name;    // name of the parser in options
  const char* models;  // models whose replies it reads
  // a chat template that contains all of these uses this parser
  std::vector<const char*> hints;
  CallFormat format;
  std::vector<const char*> aliases = {};  // vLLM's names for this parser
  // a template that contains any of these uses it too
  std::vector<const char*> other_hints = {};
};

struct ReasoningRow {
  const char* name;
  const char* models;
  const char* open;
  const char* close;
  std::vector<const char*> aliases = {};
  // A chat template that contains all of hints (empty: `close`) or any of other_hints uses this
  // format.
  std::vector<const char*> hints = {}, other_hints = {};
  // marks around the answer that are not part of its text
  std::vector<const char*> answer_marks = {};
  // a reply without thoughts begins with `close`
  bool close_alone = false;
  // opens more thoughts directly behind `close`; empty: none follow
  const char* again = "";
};

// THE lists.
std::span<const ToolParserRow> tool_parsers();
std::span<const ReasoningRow> reasoning_formats();

// Return the name of the first row whose hints the chat template contains; empty: there is none.
std::string_view detect_tool_parser(std::string_view chat_template);
std::string_view detect_reasoning(std::string_view chat_template);

struct ReplyParserOptions {
  // a name of tool_parsers(), empty: calls stay text
  std::string tools;
  // a name of reasoning_formats(), empty: reasoning stays text
  std::string reasoning;
  bool starts_in_reasoning = false;  // the prompt ended with the opening mark
  // parameter types of the tools; null: not known
  std::shared_ptr<const ParameterTypes> parameters = {};
  // a reply that is no call obeys a constraint: JSON without a mark is a call only if it is the name
  // of a tool with its arguments and nothing else
  bool constrained_answer = false;
  // the reply is nothing but reasoning and calls: what its end cuts off is no text
  bool calls_only = false;
  // what prompt_opens_call() returned for the prompt
  std::string opened = {};
};
Result<std::unique_ptr<ReplyParser>> make_reply_parser(const ReplyParserOptions& options);

// Returns the row of tool_parsers() with this name or alias, or null.
const ToolParserRow* find_tool_parser(std::string_view name);
// Returns the row of reasoning_formats() with this name or alias, or null.
const ReasoningRow* find_reasoning(std::string_view name);
// Whether a rendered prompt leaves the model inside its reasoning.
bool prompt_opens_reasoning(std::string_view prompt, std::string_view reasoning);
// Returns the mark at the end of a rendered prompt that the reply continues (CallFormat::in_prompt);
// empty: there is none.
std::string_view prompt_opens_call(std::string_view prompt, const CallFormat& format);

}  // namespace penstock
