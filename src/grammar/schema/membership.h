// Evaluates formulas and schemas for single values.
#pragma once
#include <string_view>

#include "grammar/schema/expansion.h"

namespace penstock::grammar {

// Whether the value satisfies the formula or schema. REQUIRES: the value has the formula's type.
bool holds(Expansion& expansion, FormulaId formula, const JsonValue& value);
bool holds(Expansion& expansion, SignedSchema schema, const JsonValue& value);
// Whether the key set with index `keys` in the pool contains the key.
bool contains(Expansion& expansion, uint32_t keys, std::string_view key);
// Returns the strings that satisfy a formula of strings.
ExprId text_of(Expansion& expansion, FormulaId formula);

}  // namespace penstock::grammar
