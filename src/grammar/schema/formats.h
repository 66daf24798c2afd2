// The formats of JSON Schema's `format` keyword.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "grammar/lexer/completion_lengths.h"
#include "grammar/lexer/number_dfa.h"

namespace penstock::grammar {

struct Format {
  std::string_view name;
  // regular expression for the whole text; "": any text
  std::string pattern;
  CountWindow length;
  // the pattern matches only some texts of the format
  bool narrowed = false;
  std::optional<int64_t> low, high;  // bounds of numbers
  std::string_view note;             // note for the caller; "": none
};

// Returns the format with this name; null: the name is unknown, and the keyword is then ignored.
const Format* find_format(std::string_view name);

}  // namespace penstock::grammar
