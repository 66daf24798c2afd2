// Access to codes and scales of one row in the units of a panel. Portable; for packing, unpacking
// and scalar products.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/gemm_kernels.h"
#include "kernels/panel_layout.h"

namespace penstock {

constexpr int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

// Words of 32 bits of four rows.
using FourWords [[gnu::vector_size(16)]] = uint32_t;

// Transposes the next four words of four rows: out[i] has word i of every row.
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

// Stores 32 codes of row r in the bit planes of a step. c[j] has codes 4j to 4j + 3, one per byte,
// of one row (uint32_t) or of rows r to r + 3 (FourWords).
template <class Q, class Word>
inline void store_words(uint8_t* step, int r, const Word* c) {
  const auto put = [&](int line, Word word) {
    std::memcpy(step + 64 * line + 4 * r, &word, sizeof word);
  };
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
    for (int l = 0; l < 4; ++l)
      put(l, (c[2 * l] & 0x0f0f0f0fu) | (c[2 * l + 1] & 0x0f0f0f0fu) << 4);
  } else if constexpr (Q::kBits == 1) {
    bits(0, 0);
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

// Stores 32 codes of each of 16 rows.
template <class Q>
inline void store_codes_of_rows(uint8_t* step, const uint8_t* const* rows, size_t offset) {
  for (int r = 0; r < 16; r += 4) {
    FourWords c[8];
    transpose_words(rows + r, offset, c);
    transpose_words(rows + r, offset + 16, c + 4);
    store_words<Q>(step, r, c);
  }
}

// Moves bit 4j + i of 32 to bit 8i + j: the order of columns of a row in a line of single
// bits.
inline uint32_t transpose_bits(uint32_t columns) {
  uint32_t line = 0;
  for (int k = 0; k < 32; ++k) line |= (columns >> k & 1) << (8 * (k % 4) + k / 4);
  return line;
}
inline uint32_t untranspose_bits(uint32_t line) {
  uint32_t columns = 0;
  for (int k = 0; k < 32; ++k) columns |= (line >> (8 * (k % 4) + k / 4) & 1) << k;
  return columns;
}

inline void put_word(uint8_t* line, int r, uint32_t word) {
  std::memcpy(line + 4 * r, &word, sizeof word);
}
inline uint32_t get_word(const uint8_t* line, int r) {
  uint32_t word;
  std::memcpy(&word, line + 4 * r, sizeof word);
  return word;
}

// Stores the indices and signs of row r of a unit, as GridCoded::points returns them.
template <class Q>
inline void store_points(uint8_t* unit, int r, const uint16_t* points, const uint8_t* signs) {
  using L = PanelLayout<Q>;
  constexpr int kPerStep = 32 / Q::kColumns, kWords = L::kIndexLines * L::kHighBits;
  uint32_t high[kWords + 1] = {};
  for (int i = 0; i < 8 * kPerStep; ++i) {
    const int bit = i * L::kHighBits;
    if (L::kHighBits > 0) high[bit / 32] |= static_cast<uint32_t>(points[i] >> 8) << (bit % 32);
  }
  for (int l = 0; l < kWords; ++l) put_word(unit + L::kHigh + 64 * l, r, high[l]);
  for (int step = 0; step < 8; ++step) {
    uint8_t* lines = unit + step * L::kStepBytes;
    for (int i = 0; i < kPerStep; ++i) {
      lines[i / 4 * 64 + 4 * r + i % 4] = static_cast<uint8_t>(points[step * kPerStep + i]);
    }
    if constexpr (L::kSigns)
      put_word(lines + 64 * L::kIndexLines, r, transpose_bits(get_word(signs, step)));
  }
}

// Loads the codes of row r of a step of a grid.
template <class Q>
inline void load_point_codes(const uint8_t* unit, int step, int r, uint8_t* codes) {
  using L = PanelLayout<Q>;
  constexpr int kPerStep = 32 / Q::kColumns;
  const uint8_t* lines = unit + step * L::kStepBytes;
  const uint32_t signs = L::kSigns ? untranspose_bits(get_word(lines + 64 * L::kIndexLines, r)) : 0;
  for (int i = 0; i < kPerStep; ++i) {
    uint32_t index = lines[i / 4 * 64 + 4 * r + i % 4];
    if constexpr (L::kHighBits > 0) {
      const int bit = (step * kPerStep + i) * L::kHighBits;
      index |=
          (get_word(unit + L::kHigh + bit / 32 * 64, r) >> (bit % 32) & ((1 << L::kHighBits) - 1))
          << 8;
    }
    quant::point_codes<Q>(index, signs >> (i * Q::kColumns), codes + i * Q::kColumns);
  }
}

// Loads the codes of row r of a step; the inverse of store_codes and store_points.
template <class Q>
inline void load_codes(const uint8_t* unit, int step, int r, uint8_t* codes) {
  if constexpr (PanelLayout<Q>::kGrid) {
    load_point_codes<Q>(unit, step, r, codes);
  } else {
    uint32_t c[8];
    const uint8_t* planes = unit + step * PanelLayout<Q>::kStepBytes;
    const auto get = [&](int line) { return get_word(planes + 64 * line, r); };
    for (int j = 0; j < 8; ++j) {
      if constexpr (Q::kBits == 8) {
        c[j] = get(j);
      } else if constexpr (Q::kBits >= 4) {
        c[j] = get(j / 2) >> (4 * (j % 2)) & 0x0f0f0f0fu;
      } else if constexpr (Q::kBits == 1) {
        c[j] = get(0) >> j & 0x01010101u;
      } else {
        c[j] = get(j / 4) >> (2 * (j % 4)) & 0x03030303u;
      }
      if constexpr (Q::kBits == 3) c[j] |= (get(2) >> j & 0x01010101u) << 2;
      if constexpr (Q::kBits == 5) c[j] |= (get(4) >> j & 0x01010101u) << 4;
      if constexpr (Q::kBits == 6) c[j] |= (get(4 + j / 4) >> (2 * (j % 4)) & 0x03030303u) << 4;
    }
    std::memcpy(codes, c, sizeof c);
  }
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

// Loads scale and offset of a group of a unit, without the row's factor.
template <class Q>
inline void load_scale(const uint8_t* unit, int group, int r, float& scale, float& offset) {
  using L = PanelLayout<Q>;
  if constexpr (L::kGrid) {
    const int odd = 2 * (unit[L::kScales + group / 2 * 16 + r] >> (group % 2 * 4) & 15) + 1;
    scale = get_half(unit + L::kSuper, r) * static_cast<float>(odd);
  } else if constexpr (panel::F8Scales<Q>) {
    scale = to_float(Half{static_cast<uint16_t>(unit[L::kScales + 16 * group + r] << 7)});
  } else if constexpr (Q::kHasSuperScales) {
    const uint8_t sub = unit[L::kScales + 16 * group + r];
    scale = get_half(unit + L::kSuper, r) *
            static_cast<float>(L::kPackedMins ? sub & 15 : static_cast<int8_t>(sub));
    if constexpr (Q::kHasOffset) {
      const int min = L::kPackedMins ? sub >> 4 : unit[L::kOffsets + 16 * group + r];
      offset = -(get_half(unit + L::kSuper + 32, r) * static_cast<float>(min));
    }
  } else if constexpr (!L::kWholeRow) {
    scale = get_half(unit + L::kScales + 32 * group, r);
    if constexpr (L::kZeros) {
      offset =
          -(scale * static_cast<float>(static_cast<int8_t>(unit[L::kOffsets + 16 * group + r])));
    } else if constexpr (Q::kHasOffset) {
      offset = get_half(unit + L::kOffsets + 32 * group, r);
    }
  }
}

template <class Q>
inline float level_of(const PanelMatrix& w, uint8_t code) {
  if constexpr (panel::OwnLevels<Q>) {
    return static_cast<float>(w.levels[code] - 128);
  } else {
    return static_cast<float>(Q::level(code));
  }
}

// Returns the power of two whose product with `largest` is just below FP16's largest power of two.
inline float power_for_half(float largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1.0f;
  return std::ldexp(1.0f, std::max(std::ilogb(largest) - 14, -126));
}

}  // namespace penstock
