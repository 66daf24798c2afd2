// Detects the notation of rules: "name ::= ..." is EBNF (ebnf.h), "name: ..." is Lark (lark.h).
#pragma once
#include "grammar/syntax/goal_of_schema.h"
#include "grammar/syntax/rules.h"
#include "grammar/vocabulary/vocabulary.h"

namespace penstock::grammar {

// Decides by the first definition of the text, or by a directive before it; false when there is
// neither.
bool is_lark(std::string_view text);

// Parses rules in either notation. Returns the index of the start rule. vocabulary: for special
// tokens; may be null. Refusals name the line and column.
Compiled<uint32_t> parse_rules(std::string_view text, Rules& rules, const GoalOfSchema& goal_of,
                               const Vocabulary* vocabulary, Budget& budget);

}  // namespace penstock::grammar
