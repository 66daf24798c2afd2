// Which notation rules are written in: "name ::= ..." is EBNF (ebnf.h), "name: ..." is Lark (lark.h).
#pragma once
#include "grammar/syntax/goal_of_schema.h"
#include "grammar/syntax/rules.h"
#include "grammar/vocabulary/vocabulary.h"

namespace penstock::grammar {

// Told by the first definition of a text, or by a directive in front of it. What is neither is no Lark.
bool is_lark(std::string_view text);

// The rule to begin with. vocabulary: for special tokens; may be null. Refusals name the line and column.
Compiled<uint32_t> parse_rules(std::string_view text, Rules& rules, const GoalOfSchema& goal_of,
                               const Vocabulary* vocabulary, Budget& budget);

}  // namespace penstock::grammar
