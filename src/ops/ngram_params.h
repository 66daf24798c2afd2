// Parameters of rows of hashed n-grams (Ops::embed_ngrams).
#pragma once
#include <cstdint>
#include <span>

#include "ops/row_table.h"
#include "penstock/types.h"

namespace penstock {

inline constexpr int kMostNgram = 16;

// Rows of hashed n-grams: the last n tokens, for n = 2 to ngram_size, select a row for each of
// heads_per_ngram heads,
//   row = (token * multipliers[0] ^ previous * multipliers[1] ^ ...) mod sizes[head] + offsets[head]
// in 64 bits, with the modulus of the sign of its divisor. Tokens before a sequence's first one are
// end_token, and so is all that precedes an end_token.
struct NgramParams {
  const RowTable* table = nullptr;
  int ngram_size = 2, heads_per_ngram = 1;  // ngram_size at most kMostNgram
  std::span<const int64_t> multipliers;     // [ngram_size]
  std::span<const int64_t> sizes, offsets;  // [(ngram_size - 1) * heads_per_ngram]
  TokenId end_token = 0;
  int layer = 0;
  // Offset in the layer's state of state_values() values: the last ngram_size - 1 tokens.
  int64_t state_offset = 0;

  // A token is stored in parts of 8 bits, which every type of state holds.
  static constexpr int kTokenParts = 3;
  static int64_t state_values(int ngram_size) { return (ngram_size - 1) * int64_t{kTokenParts}; }
};

}  // namespace penstock
