// How models write tool calls. Each format is described once (call_formats.cc); the parser of
// replies (marked_parser.h) and the grammar of calls (call_grammar.h) are both made of the
// description.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/chat.h"

namespace penstock {

// The kinds of JSON values that a parameter may have, one bit for each kind (json_types).
using JsonTypes = uint8_t;
namespace json_types {
inline constexpr JsonTypes kString = 1, kNumber = 2, kBoolean = 4, kNull = 8, kArray = 16,
                           kObject = 32, kAny = 63;
}
struct InnerTypes;
// Types that a schema allows a value. inner: types of items and members; null: not known.
struct ParameterType {
  ParameterType(JsonTypes of = json_types::kAny) : types(of) {}  // implicit
  JsonTypes types;
  std::shared_ptr<const InnerTypes> inner = {};
};
// nullopt: the schema does not say it.
struct InnerTypes {
  std::map<std::string, ParameterType, std::less<>> members = {};
  std::optional<ParameterType> others = {};  // members that are not named
  std::optional<ParameterType> items = {};
};
// The types of each tool's parameters: [name of the tool][name of the parameter].
using ParameterTypes =
    std::map<std::string, std::map<std::string, ParameterType, std::less<>>, std::less<>>;

// State of a scanner that reads a value piece by piece and looks at no character twice.
struct CallScan {
  size_t position = 0;
  int depth = 0;
  char quote = 0;
  bool escaped = false;

  bool operator==(const CallScan&) const = default;
};

struct CallText {
  enum class Kind { kMore, kNotACall, kCalls };
  Kind kind = Kind::kMore;
  // kCalls: number of bytes of the text that the calls take
  size_t consumed = 0;
  std::vector<ToolCall> calls;

  static CallText more() { return {}; }
  static CallText not_a_call() { return {Kind::kNotACall, 0, {}}; }
};

// Reads calls from `text`, which follows an opening mark (after a bare opening: the whole text).
// For a prefix of a text the result must be kMore or the result for the whole text; a reply that
// ends at kMore ends inside a call. scan: default-constructed for the first piece and kept for the
// next ones.
using ReadCalls = CallText (*)(std::string_view text, CallScan& scan);

class CallStream;
struct CallFormat;
// Where calls begin.
struct CallOpening {
  const CallFormat& format;
  // the mark that opened them; empty: a bare opening
  std::string_view mark;
  const ParameterTypes* types;  // of the tools; null: not known
};
using StreamCalls = std::unique_ptr<CallStream> (*)(const CallOpening& opening);

// How calls are read. The stream gives arguments while they are written; what it does not take is
// read by `whole`, which gives calls after their last character. Null: there is no such way.
struct CallReading {
  StreamCalls stream = nullptr;
  ReadCalls whole = nullptr;
};

enum class ArgumentForm : uint8_t {
  kJson,        // a JSON object
  kParameters,  // parameters one after the other, each between ParameterMarks
  kPython,      // name=value, …
  kGemma,       // name:value,… with strings between marks of their own (ParameterMarks::open)
  kElements,    // <name>value</name>…, in which members and items of values are elements as well
};

// The marks around one parameter, as in <parameter=city>Zürich</parameter>: a string is written
// verbatim, any other value as JSON. A line end after `name_end` or before `close` belongs to the
// mark. json_name_end: replaces name_end where the value is no string; empty: name_end is used.
// quote, unquote: further marks around a value, which replies may have; empty: there are none. Of
// kElements the name and name_end follow `close` as they follow `open`; items of lists are called
// kItemElement.
struct ParameterMarks {
  std::string open, name_end, close, json_name_end = {}, quote = {}, unquote = {};
};
inline constexpr std::string_view kItemElement = "item";

// One way to write calls: the fixed texts around names and arguments. White space in them may
// differ in replies that are read. "{n}" stands for a number, "{id}" for letters and digits, "{type}"
// for the name of a JSON type, "{name}" in name_end for the function's name once more.
struct CallWriting {
  std::string begin;       // text before the first call
  std::string name_begin;  // text before every function name
  std::string name_end;    // text between a name and its arguments
  std::string call_end;    // text after every call's arguments
  std::string separator;   // text between two calls
  std::string end;         // text after the last call
  ArgumentForm arguments = ArgumentForm::kJson;
  ParameterMarks parameters = {};
  // a chat template that contains this text uses this writing
  std::string hint = {};
  // The pattern of a call's id that the chat template expects back, made of "{name}" and of the
  // numbers, letters and digits that were read; empty: any id is accepted.
  std::string id = {};
};

struct CallFormat {
  std::vector<std::string> open;  // marks that open a call
  // marks that are dropped after a call, as white space is
  std::vector<std::string> close;
  CallReading read = {};
  // The writings of this format. Replies may use any of them; grammars use the first one whose hint
  // the chat template contains, or the last one.
  std::vector<CallWriting> written = {};
  // The character that opens a call without a mark, at the start of the reply or after a call (0:
  // none); bare_name: the name of a tool does so too. Only calls of known tools are opened this
  // way.
  char bare = 0;
  bool bare_name = false;
  // calls stand only at the start of the reply or after another call
  bool start_only = false;
  // the character of `bare` opens a call at the start of any line of the text, too
  bool bare_lines = false;
  bool keeps_space = false;  // white space around calls is kept as text
  bool one_call = false;     // a reply has at most one call
  // The prompt may end with a mark of `open`; the reply continues after it, also if it is text for
  // the user: text_begins[0] begins with that mark.
  bool in_prompt = false;
  // Special tokens that may enclose the text for the user, before it and behind it; empty: none.
  std::vector<std::string> text_begins = {}, text_ends = {};

  const CallWriting& writing_for(std::string_view chat_template) const;
  // Whether reading asks for the types of what is in lists and objects.
  bool needs_inner_types() const;
};

// Whether an id of a call is one that Mistral's templates take: nine letters and digits.
bool is_short_call_id(std::string_view id);

// Returns the first piece of a writing's text: a field ("{n}", "{id}", "{type}", "{name}") or the fixed text
// before the next field, and removes it from `text`.
std::string_view next_piece(std::string_view& text);

}  // namespace penstock
