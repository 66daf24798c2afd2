// Codes and FP16 numbers of one row in the units of a panel. Portable; for packing and unpacking.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/panel_layout.h"

namespace penstock {

constexpr int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

// Four words of 32 bits, of four rows.
using FourWords [[gnu::vector_size(16)]] = uint32_t;

// The words of four rows' next 16 bytes, column by column: out[i] is column i of the rows.
inline void transpose_words(const uint8_t* const* rows, size_t offset, FourWords* out) {
  FourWords w[4];
  for (int r = 0; r < 4; ++r) std::memcpy(&w[r], rows[r] + offset, sizeof w[r]);
  const FourWords a = __builtin_shufflevector(w[0], w[1], 0, 4, 1, 5);
  const FourWords b = __builtin_shufflevector(w[0], w[1], 2, 6, 3, 7);
  const FourWords c = __builtin_shufflevector(w[2], w[3], 0, 4, 1, 5);
  const FourWords d = __builtin_shufflevector(w[2], w[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  out[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  out[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

// 32 codes of row r into the planes of a step: c[j] is codes 4j to 4j + 3, one per byte; of one row
// (uint32_t) or of rows r to r + 3 (FourWords).
template <class Q, class Word>
inline void store_words(uint8_t* step, int r, const Word* c) {
  const auto put = [&](int line, Word word) { std::memcpy(step + 64 * line + 4 * r, &word, sizeof word); };
  const auto crumbs = [&](int first_line, int shift) {
    for (int l = 0; l < 2; ++l) {
      Word word = {};
      for (int s = 0; s < 4; ++s) word |= ((c[4 * l + s] >> shift) & 0x03030303u) << (2 * s);
      put(first_line + l, word);
    }
  };
  const auto bits = [&](int line, int shift) {
    Word word = {};
    for (int s = 0; s < 8; ++s) word |= ((c[s] >> shift) & 0x01010101u) << s;
    put(line, word);
  };
  if constexpr (Q::kBits == 8) {
    for (int j = 0; j < 8; ++j) put(j, c[j]);
  } else if constexpr (Q::kBits >= 4) {
    for (int l = 0; l < 4; ++l) put(l, (c[2 * l] & 0x0f0f0f0fu) | (c[2 * l + 1] & 0x0f0f0f0fu) << 4);
  } else {
    crumbs(0, 0);
  }
  if constexpr (Q::kBits == 3) bits(2, 2);
  if constexpr (Q::kBits == 5) bits(4, 4);
  if constexpr (Q::kBits == 6) crumbs(4, 4);
}

template <class Q>
inline void store_codes(uint8_t* step, int r, const uint8_t* codes) {
  uint32_t c[8];
  std::memcpy(c, codes, sizeof c);
  store_words<Q>(step, r, c);
}

// 32 codes of each of 16 rows.
template <class Q>
inline void store_codes_of_rows(uint8_t* step, const uint8_t* const* rows, size_t offset) {
  for (int r = 0; r < 16; r += 4) {
    FourWords c[8];
    transpose_words(rows + r, offset, c);
    transpose_words(rows + r, offset + 16, c + 4);
    store_words<Q>(step, r, c);
  }
}

// The inverse of store_codes.
template <class Q>
inline void load_codes(const uint8_t* step, int r, uint8_t* codes) {
  uint32_t c[8];
  const auto get = [&](int line) {
    uint32_t word;
    std::memcpy(&word, step + 64 * line + 4 * r, 4);
    return word;
  };
  for (int j = 0; j < 8; ++j) {
    if constexpr (Q::kBits == 8) {
      c[j] = get(j);
    } else if constexpr (Q::kBits >= 4) {
      c[j] = get(j / 2) >> (4 * (j % 2)) & 0x0f0f0f0fu;
    } else {
      c[j] = get(j / 4) >> (2 * (j % 4)) & 0x03030303u;
    }
    if constexpr (Q::kBits == 3) c[j] |= (get(2) >> j & 0x01010101u) << 2;
    if constexpr (Q::kBits == 5) c[j] |= (get(4) >> j & 0x01010101u) << 4;
    if constexpr (Q::kBits == 6) c[j] |= (get(4 + j / 4) >> (2 * (j % 4)) & 0x03030303u) << 4;
  }
  std::memcpy(codes, c, sizeof c);
}

inline void put_half(uint8_t* to, int r, float value) {
  const Half half = to_half(value);
  std::memcpy(to + 2 * r, &half, 2);
}
inline float get_half(const uint8_t* from, int r) {
  Half half;
  std::memcpy(&half, from + 2 * r, 2);
  return to_float(half);
}

// A power of two that brings `largest` just below FP16's largest power of two.
inline float power_for_half(float largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1.0f;
  return std::ldexp(1.0f, std::max(std::ilogb(largest) - 14, -126));
}

}  // namespace penstock
