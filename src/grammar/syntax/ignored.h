// What a grammar ignores stands between its terminals, not in front of the first one.
#pragma once
#include <cstdint>
#include <unordered_set>

#include "grammar/parts/budget.h"
#include "grammar/syntax/rules.h"

namespace penstock::grammar {

// lexemes: nodes of two parts, what is ignored and a terminal behind it. Returns a rule with the texts of `root` in which
// the first lexeme is its terminal alone. Rules are added, none is changed. Errors: kTooLarge.
Compiled<uint32_t> without_ignored_at_begin(Rules& rules, uint32_t root,
                                            const std::unordered_set<uint32_t>& lexemes, Budget& budget);

}  // namespace penstock::grammar
