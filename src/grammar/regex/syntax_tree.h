// The syntax tree of a regular expression.
#pragma once
#include <string_view>
#include <vector>

#include "grammar/parts/refusal.h"
#include "grammar/regex/char_set.h"

namespace penstock::grammar {

struct RegexNode {
  enum class Kind : uint8_t {
    kChars,
    kConcat,
    kAlternatives,
    kRepeat,
    kTextStart,
    kTextEnd,
    kLookAhead
  };
  Kind kind = Kind::kConcat;
  bool negative = false;  // kLookAhead
  // whether the node or a descendant is an anchor or a look-ahead
  bool has_assertions = false;
  uint32_t min = 0, max = 0;    // kRepeat
  CharSet chars;                // kChars
  std::vector<uint32_t> parts;  // children; kRepeat, kLookAhead: one
};

struct RegexTree {
  std::vector<RegexNode> nodes;  // children before parents
  uint32_t root = 0;
};

// Options of the dialect, besides ECMAScript's.
struct RegexDialect {
  bool terminal = false;  // the dialect of parse_terminal_regex()
  bool ignore_case = false, dot_all = false;
};

Compiled<RegexTree> parse_regex_tree(std::string_view pattern, int max_depth,
                                     const RegexDialect& dialect);

}  // namespace penstock::grammar
