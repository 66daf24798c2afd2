// Formulas of numbers and strings as unions of sets.
#pragma once
#include <optional>

#include "grammar/schema/expansion.h"

namespace penstock::grammar {

// Returns a list that contains every value of the formula; null: the formula lists no values.
// REQUIRES: a formula of one type.
const std::vector<const JsonValue*>* listed_values(const FormulaPool& pool, FormulaId formula);

// Returns formulas whose union is the formula and in which no kValues atom is below a kOr. nullopt:
// there are too many.
std::optional<std::vector<FormulaId>> without_choices_of_values(FormulaPool& pool,
                                                                FormulaId formula);

// Returns pieces whose union is the numbers of the formula; obviously empty pieces are left out.
// nullopt: there are too many. REQUIRES: the formula has no kValues atoms.
std::optional<std::vector<NumberPiece>> number_pieces(const FormulaPool& pool, FormulaId formula);

// As number_pieces(), for strings.
std::optional<std::vector<TextConstraint>> text_pieces(Expansion& expansion, FormulaId formula);

}  // namespace penstock::grammar
