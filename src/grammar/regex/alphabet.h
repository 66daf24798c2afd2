// The alphabet of an automaton: a partition of all Unicode scalar values into classes (symbols).
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/parts/budget.h"
#include "grammar/regex/char_set.h"

namespace penstock::grammar {

class Alphabet {
 public:
  struct Span {
    char32_t first;  // the span ends before the next span's first
    uint16_t symbol;
  };

  static constexpr int kMostSymbols = 1 << 16;

  // Returns the coarsest partition of which every set is a union of classes. It is of no use when its
  // size() is more than kMostSymbols, or the budget is exhausted.
  static Alphabet of(std::span<const CharSet* const> sets, Budget& budget);

  uint16_t symbol(char32_t c) const { return c < 128 ? ascii_[c] : symbol_beyond_ascii(c); }
  int size() const { return static_cast<int>(samples_.size()); }
  char32_t sample(int symbol) const { return samples_[symbol]; }  // a member of the class
  // Ascending; the first begins at 0; surrogates belong to the span they fall into and are never
  // asked for.
  std::span<const Span> spans() const { return spans_; }

 private:
  uint16_t symbol_beyond_ascii(char32_t c) const;
  std::vector<Span> spans_;
  std::vector<char32_t> samples_;
  std::array<uint16_t, 128> ascii_{};
};

}  // namespace penstock::grammar
