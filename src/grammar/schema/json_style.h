// Options of JSON texts that no schema states (JsonStyle), and notes about keywords that are not
// enforced (Note).
#pragma once
#include <string>

namespace penstock::grammar {

// Options of JSON texts: white space, escapes, words and order of members.
struct JsonStyle {
  bool any_whitespace = true;  // false: none
  // instead of at most 16 characters of JSON's white space; a regular expression
  std::string whitespace_pattern;
  // objects without additionalProperties have no others than their properties
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
