// Codes and FP16 numbers of one row in the units of a panel. Portable; for packing and unpacking.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/panel_layout.h"

namespace penstock {

// 32 codes of row r into the planes of a step. Words hold four codes, one per byte.
template <class Q>
inline void store_codes(uint8_t* step, int r, const uint8_t* codes) {
  uint32_t c[8];
  std::memcpy(c, codes, sizeof c);
  const auto put = [&](int line, uint32_t word) { std::memcpy(step + 64 * line + 4 * r, &word, 4); };
  const auto crumbs = [&](int first_line, int shift) {
    for (int l = 0; l < 2; ++l) {
      uint32_t word = 0;
      for (int s = 0; s < 4; ++s) word |= ((c[4 * l + s] >> shift) & 0x03030303u) << (2 * s);
      put(first_line + l, word);
    }
  };
  const auto bits = [&](int line, int shift) {
    uint32_t word = 0;
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
