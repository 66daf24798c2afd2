// Formulas of numbers and strings as sets.
#pragma once
#include <optional>

#include "grammar/schema/expansion.h"

namespace penstock::grammar {

// The values of which every value of the formula is one; null where they are not listed. REQUIRES:
// of one type.
const std::vector<const JsonValue*>* listed_values(const FormulaPool& pool, FormulaId formula);

// Alternatives that together are the formula, in which lists of values stand in no choice. nullopt:
// too many.
std::optional<std::vector<FormulaId>> without_choices_of_values(FormulaPool& pool,
                                                                FormulaId formula);

// The numbers of a formula without lists of values. nullopt: too many pieces. Pieces that are
// obviously empty are left out.
std::optional<std::vector<NumberPiece>> number_pieces(const FormulaPool& pool, FormulaId formula);

// The texts of a formula, likewise.
std::optional<std::vector<TextConstraint>> text_pieces(Expansion& expansion, FormulaId formula);

}  // namespace penstock::grammar
