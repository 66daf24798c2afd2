// Other keys of an object: those that are no slots, grouped by label.
#pragma once
#include <functional>
#include <memory>

#include "grammar/schema/goal_drafts.h"

namespace penstock::grammar {

// Returns a lexeme of the keys with one of the labels, slots' keys included, as spelled after the
// opening quotation mark and tagged 1 + label; null: there are none. Errors: kTooLarge.
Compiled<std::shared_ptr<const Lexeme>> other_keys_of(const ObjectDraft& draft,
                                                      const std::vector<bool>& labels,
                                                      ExprPool& exprs, Budget& budget);

// Returns the number of keys with one of the labels, slots' keys excluded; kNone: more than
// kManyWords. Errors: kTooLarge.
Compiled<uint32_t> count_other_keys(const ObjectDraft& draft, const std::vector<bool>& labels,
                                    ExprPool& exprs, Budget& budget);

// Whether the object can still be completed behind an edge, but for counts.
using EdgeTest = std::function<bool(const ValueEdge&)>;

// Returns the labels of other keys that can satisfy the existence.
std::vector<bool> finding_labels(const ObjectDraft& draft, uint32_t existence,
                                 const EdgeTest& leads_on);

// Whether n_keys keys of each label (kNone: any number) are enough to satisfy all existences. One
// member may satisfy several. Returns false when the budget is exhausted.
bool finds_keys(const ObjectDraft& draft, const EdgeTest& leads_on, std::vector<uint32_t> n_keys,
                Budget& budget);

// Whether other keys differ in which required members they satisfy. This matters when the number of
// members is bounded: a key that satisfies none might use up the room of one that does. possible:
// by goal, whether it has values.
bool keys_differ(const ObjectDraft& draft, const std::vector<bool>& possible);

}  // namespace penstock::grammar
