// How models write tool calls. Each format is described once (call_formats.cc); the parser of replies
// (marked_parser.h) and the grammar of calls (call_grammar.h) are both made of the description.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/chat.h"

namespace penstock {

// Which kinds of JSON values a parameter may have: bits.
using JsonTypes = uint8_t;
namespace json_types {
inline constexpr JsonTypes kString = 1, kNumber = 2, kBoolean = 4, kNull = 8, kArray = 16, kObject = 32,
                           kAny = 63;
}
// By the name of the tool, then of the parameter.
using ParameterTypes = std::map<std::string, std::map<std::string, JsonTypes, std::less<>>, std::less<>>;

// Where a value that is read piece by piece stands, so that no character is looked at twice.
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
  size_t consumed = 0;  // kCalls: how much of the text the calls take
  std::vector<ToolCall> calls;

  static CallText more() { return {}; }
  static CallText not_a_call() { return {Kind::kNotACall, 0, {}}; }
};

// text: what follows an opening mark (a bare opening: everything). Must answer from a prefix of the text as it would from
// all of it: kMore until the prefix decides; a reply that ends there ends inside of a call. scan is zero at first and kept
// between calls.
using ReadCalls = CallText (*)(std::string_view text, CallScan& scan);

enum class ArgumentForm : uint8_t {
  kJson,        // a JSON object
  kParameters,  // one after the other, each between marks
  kPython,      // name=value, …
  kGemma,       // name:value,… with strings between marks of their own (ParameterMarks::open)
};

// <parameter=city>Zürich</parameter>: strings as they are, other values as JSON. A line end behind `name_end` or in front of
// `close` belongs to the mark. json_name_end: instead of name_end where the value is no string; empty, it is the same.
struct ParameterMarks {
  std::string open, name_end, close, json_name_end = {};
};

// Fixed texts around what varies. White space in them may differ in replies that are read. "{n}" is a number, "{id}" letters
// and digits.
struct CallWriting {
  std::string begin;       // in front of the first call
  std::string name_begin;  // in front of every name
  std::string name_end;    // between a name and its arguments
  std::string call_end;    // behind every call's arguments
  std::string separator;   // between calls
  std::string end;         // behind the last call
  ArgumentForm arguments = ArgumentForm::kJson;
  ParameterMarks parameters = {};
  std::string hint = {};  // a chat template that has it asks for this writing
  // The call's id as the chat template wants to have it back, of "{name}" and of the numbers, letters and digits that were read;
  // empty: any id will do.
  std::string id = {};
};

struct CallFormat {
  std::vector<std::string> open;   // marks that open a call
  std::vector<std::string> close;  // dropped behind a call, as white space is
  // Of calls that are JSON or Python on the whole; null: by the writings.
  ReadCalls read = nullptr;
  // All are read; grammars have the first whose hint the chat template has, or the last.
  std::vector<CallWriting> written = {};
  // What opens a call without a mark, at the start of the reply or behind a call: this character, or a tool's name. Such a
  // call is one of a tool that there is.
  char bare = 0;
  bool bare_name = false;
  bool start_only = false;   // a call stands at the start of the reply or behind a call only
  bool keeps_space = false;  // white space around calls is text too
  bool one_call = false;     // a reply has one call at most
  // Special tokens that may stand around a text for the user.
  std::string text_begin = {}, text_end = {};

  const CallWriting& writing_for(std::string_view chat_template) const;
};

// "{n}", "{id}" or the text up to the next of them: a piece of one of a writing's texts. Moves `text` behind it.
std::string_view next_piece(std::string_view& text);

}  // namespace penstock
