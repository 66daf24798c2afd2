// Automata that spell sets of numbers in JSON.
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
  bool open = false;  // the bound itself is outside
  bool operator==(const NumberBound&) const = default;
};

// The numbers between two bounds that are multiples of some numbers and of none of others.
struct NumberPiece {
  std::optional<NumberBound> low, high;
  std::vector<Decimal> multiples_of, not_multiples_of;  // all positive; integers are multiples of 1
  bool digits_only = false;                             // 1 but not 1.0, as draft 4 has integers
  bool operator==(const NumberPiece&) const = default;
  // A number that has bounds or factors is spelled without an exponent, but for bounds of 0 where two digits of it are
  // allowed; integers may end in ".0"; beside an open bound there are at most 15 digits, which a double tells apart.
  bool free() const { return !low && !high && multiples_of.empty() && not_multiples_of.empty(); }
  bool contains(const Decimal& value) const;
};

enum class NumberSpelling : uint8_t { kAny, kCanonical };  // canonical: one spelling for each value

// Accepts the union with tag 1; start() is kDead where it is empty. Errors: kTooLarge, kUnsupported.
Compiled<ByteDfa> make_number_dfa(std::span<const NumberPiece> pieces, NumberSpelling spelling,
                                  Budget& budget);

}  // namespace penstock::grammar
