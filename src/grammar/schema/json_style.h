// Options of JSON texts that no schema states (JsonStyle), and notes about keywords that are not
// enforced (Note).
#pragma once
#include <cstdint>
#include <string>

namespace penstock::grammar {

// White space between the tokens of JSON.
enum class WhiteSpace : uint8_t {
  kAny,      // at most 16 characters of JSON's, between any two tokens
  kOneLine,  // at most one space, behind commas and colons: what Python's json.dumps() writes
  kNone,
};

// Options of JSON texts: white space, escapes, words and order of members.
struct JsonStyle {
  WhiteSpace whitespace = WhiteSpace::kAny;
  // Regular expression for the white space between any two tokens, instead of `whitespace`; "":
  // unset.
  std::string whitespace_pattern;
  // An object whose schemas have `properties` or `patternProperties`, but neither
  // additionalProperties nor unevaluatedProperties, may have only the members that these and
  // `required` name. All schemas that apply to one object are combined first. An object for which
  // nothing would remain stays open.
  bool closed_objects = false;
  // every character of a string may be spelled \uXXXX
  bool all_escapes = false;
  bool python_words = false;  // True, False and None
  // oneOf is treated as anyOf where the branches cannot be told apart
  bool one_of_as_any_of = false;
  // Members may come in any order, as JSON Schema defines; false: in the order of the schema.
  bool any_member_order = false;
};

// A note about a keyword that is not enforced or is narrowed. JSON Schema calls keywords that are
// not enforced annotations.
struct Note {
  std::string where;  // JSON pointer, as in Refusal
  std::string message;
};

}  // namespace penstock::grammar
