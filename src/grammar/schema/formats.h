// The values of `format` and the texts they stand for.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "grammar/lexer/completion_lengths.h"
#include "grammar/lexer/number_dfa.h"

namespace penstock::grammar {

struct Format {
  std::string_view name;
  // of the whole text; "" where texts are not bounded
  std::string pattern;
  CountWindow length;
  bool narrowed = false;             // the pattern has fewer texts than the format
  std::optional<int64_t> low, high;  // of numbers
  std::string_view note;             // what a caller should know; "" for nothing
};

// Null: the name is not known, and means nothing then.
const Format* find_format(std::string_view name);

}  // namespace penstock::grammar
