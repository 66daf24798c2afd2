// Transforms rules with ignored texts (%ignore), which are allowed between terminals but not before
// the first one.
#pragma once
#include <cstdint>
#include <unordered_set>

#include "grammar/parts/budget.h"
#include "grammar/syntax/rules.h"

namespace penstock::grammar {

// Returns a rule with the texts of `root` in which the first lexeme is its terminal without the
// ignored text before it. lexemes: nodes of two parts, ignored text and the terminal after it.
// Rules are added, none is changed. Errors: kTooLarge.
Compiled<uint32_t> without_ignored_at_begin(Rules& rules, uint32_t root,
                                            const std::unordered_set<uint32_t>& lexemes,
                                            Budget& budget);

}  // namespace penstock::grammar
