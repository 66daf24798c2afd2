// Grammars in the notation of the Python library Lark, with llguidance's additions:
//
//   start: "(" sum ")" | NUMBER          // rules are lower case, terminals upper case; the text is a start
//   sum.2: sum "+" start -> plus         // a definition is a line, or goes on with "|" on the next one
//        | separated{start, ","}         // a template
//   separated{x, mark}: x (mark x)*
//   NUMBER: "-"? "0".."9"+ /\.[0-9]{1,3}/? | "nan"i
//   object: %json {"type": "object"}
//   %import common.WS
//   %ignore WS
//
// Items repeat with ? * + ~ n, ~ n..m and {n,m}, [x] is x?; <name> and <[12,20-29]> are special
// tokens. The language is the context-free one: a terminal takes any text that it matches, not only
// the longest. So priorities change nothing, and neither do aliases and the marks ? ! _ of names,
// which are about syntax trees. What is ignored may stand between terminals, any number of times,
// but neither in front of the first one nor behind the last one.
#pragma once
#include <string_view>

#include "grammar/parts/budget.h"
#include "grammar/syntax/goal_of_schema.h"
#include "grammar/syntax/rules.h"
#include "grammar/vocabulary/vocabulary.h"

namespace penstock::grammar {

// Returns the index of the start rule. vocabulary: for special tokens; may be null. Refusals name
// the line and column.
Compiled<uint32_t> parse_lark(std::string_view text, Rules& rules, const GoalOfSchema& goal_of,
                              const Vocabulary* vocabulary, Budget& budget);

}  // namespace penstock::grammar
