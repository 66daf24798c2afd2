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
  // instead of kAny and kOneLine: a regular expression for what stands between any two tokens
  std::string whitespace_pattern;
  // An object whose schemas have `properties` or `patternProperties`, and neither
  // additionalProperties nor unevaluatedProperties, has members of these and of `required` only.
  // All schemas that one object obeys count together. Where nothing would be left, it stays open.
  bool closed_objects = false;
  // every character of a string may be spelled \uXXXX
  bool all_escapes = false;
  bool python_words = false;      // True, False and None
  bool one_of_as_any_of = false;  // where oneOf cannot be told exactly
  // Members in any order, as JSON Schema means it; else in the one in which the schema names them.
  bool any_member_order = false;
};

// What a specification asks for that is not enforced, or is narrowed: JSON Schema calls such
// keywords annotations.
struct Note {
  std::string where;  // JSON pointer, as in Refusal
  std::string message;
};

}  // namespace penstock::grammar
