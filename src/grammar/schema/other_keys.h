// The keys of an object that no slot has, by their labels.
#pragma once
#include <memory>

#include "grammar/schema/goal_drafts.h"

namespace penstock::grammar {

// The keys with one of the labels, those of slots included, as they are written behind their opening
// quotation marks, tagged 1 + label; null: there are none. Errors: kTooLarge.
Compiled<std::shared_ptr<const Lexeme>> other_keys_of(const ObjectDraft& draft,
                                                      const std::vector<bool>& labels,
                                                      ExprPool& exprs, Budget& budget);

// The number of keys with one of the labels that no slot has; kNone: more than kManyWords. Errors:
// kTooLarge.
Compiled<uint32_t> count_other_keys(const ObjectDraft& draft, const std::vector<bool>& labels,
                                    ExprPool& exprs, Budget& budget);

// Whether it depends on an other key which of the members is found that must exist: where their
// number has a bound, a key that finds none might leave no room for one that does. possible: of each
// goal, whether it has values.
bool keys_differ(const ObjectDraft& draft, const std::vector<bool>& possible);

}  // namespace penstock::grammar
