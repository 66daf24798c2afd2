// Automata over the JSON spellings of sets of numbers.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "grammar/lexer/byte_dfa.h"
#include "grammar/parts/budget.h"
#include "grammar/parts/decimal.h"

namespace penstock::grammar {

struct NumberBound {
  Decimal value;
  bool open = false;  // the bound itself is excluded
  bool operator==(const NumberBound&) const = default;
};

// The numbers between two bounds that are multiples of all `multiples_of` and of none of
// `not_multiples_of`.
struct NumberPiece {
  std::optional<NumberBound> low, high;
  std::vector<Decimal> multiples_of, not_multiples_of;  // all positive; {1} for integers
  // integers are spelled 1 but not 1.0, as in draft 4
  bool digits_only = false;
  bool operator==(const NumberPiece&) const = default;
  // Whether the piece has neither bounds nor factors. Numbers of other pieces are spelled without
  // an exponent, except for bounds of 0, where exponents of two digits are allowed; integers may
  // end in ".0"; next to an open bound there are at most 15 digits, which a double can distinguish.
  bool free() const { return !low && !high && multiples_of.empty() && not_multiples_of.empty(); }
  bool contains(const Decimal& value) const;
};

// kCanonical: one spelling for each value
enum class NumberSpelling : uint8_t { kAny, kCanonical };

// Returns an automaton that accepts the union of the pieces with tag 1; its start() is kDead when
// the union is empty. Errors: kTooLarge, kUnsupported.
Compiled<ByteDfa> make_number_dfa(std::span<const NumberPiece> pieces, NumberSpelling spelling,
                                  Budget& budget);

}  // namespace penstock::grammar
