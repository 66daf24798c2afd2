// A model's reply taken apart: reasoning, text for the user, tool calls. The pieces add up to the same reply
// however the text was cut, so the stream and the plain reply agree. Nothing of the reply is lost: what looks
// like a call but is none stays text.
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

// What one more piece of text added. A call appears whole, when its last character came; without
// an id, unless its format has ids that the chat template wants to have back.
struct ReplyPart {
  std::string reasoning, content;
  std::vector<ToolCall> calls;

  void append(ReplyPart more);
  bool operator==(const ReplyPart&) const = default;
};

// One per reply; not thread-safe. The text must be whole UTF-8 and hold the texts of special tokens (markers
// are often special tokens).
class ReplyParser {
 public:
  virtual ~ReplyParser() = default;
  virtual ReplyPart push(std::string_view text) = 0;
  virtual ReplyPart finish() = 0;  // no more text
};

struct ToolParserRow {
  const char* name;                // of the option
  const char* models;              // whose replies it reads
  std::vector<const char*> hints;  // a chat template with all of these asks for this parser
  CallFormat format;
  std::vector<const char*> aliases = {};      // vLLM's names for it
  std::vector<const char*> other_hints = {};  // a template with one of these asks for it too
};

struct ReasoningRow {
  const char* name;
  const char* models;
  const char* open;
  const char* close;
  std::vector<const char*> aliases = {};
  // A chat template with all of these has this format; empty: one with `close`. With one of other_hints it has it too.
  std::vector<const char*> hints = {}, other_hints = {};
  std::vector<const char*> answer_marks = {};  // around the answer, which are no text
};

// THE lists.
std::span<const ToolParserRow> tool_parsers();
std::span<const ReasoningRow> reasoning_formats();

// The first row whose hints a chat template holds; empty when there is none.
std::string_view detect_tool_parser(std::string_view chat_template);
std::string_view detect_reasoning(std::string_view chat_template);

struct ReplyParserOptions {
  std::string tools;                 // a name of tool_parsers(), empty: calls stay text
  std::string reasoning;             // a name of reasoning_formats(), empty: reasoning stays text
  bool starts_in_reasoning = false;  // the prompt ended with the opening mark
  std::shared_ptr<const ParameterTypes> parameters = {};  // of the tools; null: the tools are not known
};
Result<std::unique_ptr<ReplyParser>> make_reply_parser(const ReplyParserOptions& options);

// Nothing for a name that tool_parsers() does not have.
const ToolParserRow* find_tool_parser(std::string_view name);
// The marks around reasoning; nothing for a name that reasoning_formats() does not have.
const ReasoningRow* find_reasoning(std::string_view name);
// Whether a rendered prompt leaves the model inside its reasoning.
bool prompt_opens_reasoning(std::string_view prompt, std::string_view reasoning);

// The whole reply at once: the same as pushing it in any pieces.
ReplyPart parse_reply(ReplyParser& parser, std::string_view text);

}  // namespace penstock
