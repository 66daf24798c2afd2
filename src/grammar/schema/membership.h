// What formulas say about one value.
#pragma once
#include <string_view>

#include "grammar/schema/expansion.h"

namespace penstock::grammar {

// Whether the value is one of those. REQUIRES: it has the type the formula is for.
bool holds(Expansion& expansion, FormulaId formula, const JsonValue& value);
bool holds(Expansion& expansion, SignedSchema schema, const JsonValue& value);
// Whether the key is one of the set with that number in the pool.
bool contains(Expansion& expansion, uint32_t keys, std::string_view key);
// The strings for which a formula of strings holds.
ExprId text_of(Expansion& expansion, FormulaId formula);

}  // namespace penstock::grammar
