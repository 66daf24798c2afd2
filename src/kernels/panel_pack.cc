#include "kernels/panel_pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/panel_layout.h"

namespace penstock {
namespace {

int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

// --- Integer codes
// -----------------------------------------------------------------------------------------------

// 32 codes of row r into the planes of a step. Words hold four codes, one per byte.
template <class Q>
void store_codes(uint8_t* step, int r, const uint8_t* codes) {
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
void load_codes(const uint8_t* step, int r, uint8_t* codes) {
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

void put_half(uint8_t* to, int r, float value) {
  const Half half = to_half(value);
  std::memcpy(to + 2 * r, &half, 2);
}
float get_half(const uint8_t* from, int r) {
  Half half;
  std::memcpy(&half, from + 2 * r, 2);
  return to_float(half);
}

// Scales that a file does not hold as FP16 may not fit its range: their rows get a factor.
template <class Q>
constexpr bool needs_row_scales() {
  if constexpr (requires(const typename Q::Block& b) { b.scale; }) {
    return !std::is_same_v<decltype(Q::Block::scale), Half>;
  } else {
    return true;
  }
}

// A power of two that brings the largest scale of a row just below FP16's largest power of two.
template <class Q>
float find_row_scale(const typename Q::Block* blocks, int n_blocks) {
  float largest = 0;
  for (int b = 0; b < n_blocks; ++b) {
    uint8_t codes[Q::kBlockSize];
    float scales[quant::kGroups<Q>], offsets[quant::kGroups<Q>] = {};
    Q::codes(blocks[b], codes, scales, offsets);
    for (float s : scales) largest = std::max(largest, std::fabs(s));
    for (float o : offsets) largest = std::max(largest, std::fabs(o));
  }
  if (!(largest > 0) || !std::isfinite(largest)) return 1.0f;
  return std::ldexp(1.0f, std::max(std::ilogb(largest) - 14, -126));
}

// One block of row r into its units.
template <class Q>
void store_block(const typename Q::Block& block, int column, int r, float row_scale, uint8_t* panel) {
  using L = PanelLayout<Q>;
  uint8_t* unit = panel + static_cast<size_t>(column / L::kUnitK) * L::kUnitBytes;
  const int first_step = column % L::kUnitK / 32;
  uint8_t codes[Q::kBlockSize];
  float scales[quant::kGroups<Q>], offsets[quant::kGroups<Q>] = {};
  Q::codes(block, codes, scales, offsets);
  for (int s = 0; s < Q::kBlockSize / 32; ++s) {
    store_codes<Q>(unit + (first_step + s) * L::kStepBytes, r, codes + 32 * s);
  }
  if constexpr (Q::kHasSuperScales) {
    float scale = 0, min = 0;
    int8_t sub_scales[quant::kGroups<Q>], sub_mins[quant::kGroups<Q>] = {};
    Q::super_scales(block, scale, min, sub_scales, sub_mins);
    for (int g = 0; g < quant::kGroups<Q>; ++g) {
      const auto sub = static_cast<uint8_t>(sub_scales[g]);
      unit[L::kScales + 16 * g + r] = static_cast<uint8_t>(L::kPackedMins ? sub | sub_mins[g] << 4 : sub);
      if constexpr (L::kSeparateMins) unit[L::kOffsets + 16 * g + r] = static_cast<uint8_t>(sub_mins[g]);
    }
    put_half(unit + L::kSuper, r, scale);
    if constexpr (Q::kHasOffset) put_half(unit + L::kSuper + 32, r, min);
  } else {
    for (int g = 0; g < quant::kGroups<Q>; ++g) {
      const int group = column % L::kUnitK / Q::kGroupSize + g;
      put_half(unit + L::kScales + 32 * group, r, scales[g] / row_scale);
      if constexpr (Q::kHasOffset) put_half(unit + L::kOffsets + 32 * group, r, offsets[g] / row_scale);
    }
  }
}

template <class Q>
void pack_codes(const QuantizedMatrix& from, const PanelMatrix& to, float* row_scales, int panel_index) {
  const size_t row_bytes = from.row_bytes();
  const int n_blocks = from.cols / Q::kBlockSize, first = panel_index * kPanelRows;
  const int n_rows = std::min(kPanelRows, from.rows - first);
  auto* panel = const_cast<uint8_t*>(to.data) + static_cast<size_t>(panel_index) * to.panel_bytes;
  std::memset(panel, 0, to.panel_bytes);
  const typename Q::Block* rows[kPanelRows];
  float scales[kPanelRows];
  for (int r = 0; r < kPanelRows; ++r) {
    scales[r] = 1.0f;
    if (r < n_rows) {
      rows[r] = reinterpret_cast<const typename Q::Block*>(from.bytes.data() + (first + r) * row_bytes);
      if constexpr (needs_row_scales<Q>()) scales[r] = find_row_scale<Q>(rows[r], n_blocks);
    }
    if (row_scales != nullptr) row_scales[first + r] = scales[r];
  }
  for (int b = 0; b < n_blocks; ++b) {
    for (int r = 0; r < n_rows; ++r) {
      typename Q::Block block;  // blocks in a file may lie at odd addresses
      std::memcpy(static_cast<void*>(&block), static_cast<const void*>(rows[r] + b), sizeof block);
      store_block<Q>(block, b * Q::kBlockSize, r, scales[r], panel);
    }
  }
}

template <class Q>
void unpack_codes(const PanelMatrix& w, int row, float* out) {
  using L = PanelLayout<Q>;
  const int r = row % kPanelRows;
  const float row_scale = w.row_scales != nullptr ? w.row_scales[row] : 1.0f;
  const uint8_t* unit = w.data + static_cast<size_t>(row / kPanelRows) * w.panel_bytes;
  for (int k = 0; k < w.cols; k += 32) {
    const uint8_t* u = unit + static_cast<size_t>(k / L::kUnitK) * L::kUnitBytes;
    const int step = k % L::kUnitK / 32;
    uint8_t codes[32];
    load_codes<Q>(u + step * L::kStepBytes, r, codes);
    for (int i = 0; i < 32 && k + i < w.cols; ++i) {
      const int g = (step * 32 + i) / Q::kGroupSize;
      float scale = 0, offset = 0;
      if constexpr (Q::kHasSuperScales) {
        const uint8_t sub = u[L::kScales + 16 * g + r];
        scale = get_half(u + L::kSuper, r) *
                static_cast<float>(L::kPackedMins ? sub & 15 : static_cast<int8_t>(sub));
        if constexpr (Q::kHasOffset) {
          const int min = L::kPackedMins ? sub >> 4 : u[L::kOffsets + 16 * g + r];
          offset = -(get_half(u + L::kSuper + 32, r) * static_cast<float>(min));
        }
      } else {
        scale = get_half(u + L::kScales + 32 * g, r) * row_scale;
        if constexpr (Q::kHasOffset) offset = get_half(u + L::kOffsets + 32 * g, r) * row_scale;
      }
      out[k + i] = scale * static_cast<float>(Q::level(codes[i]));
      if constexpr (Q::kHasOffset) out[k + i] += offset;
    }
  }
}

// --- Floats
// --------------------------------------------------------------------------------------------------------

// Where element (r, k) of a panel of T lies.
template <class T>
size_t float_index(int r, int k) {
  if constexpr (std::is_same_v<T, BFloat16>) return static_cast<size_t>(k / 2) * 32 + 2 * r + k % 2;
  return static_cast<size_t>(k) * 16 + r;
}

template <class T>
T from_float(float x) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(x);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(x);
  } else {
    return x;
  }
}

template <class T>
void pack_floats(const QuantizedMatrix& from, const PanelMatrix& to, int panel_index) {
  const int first = panel_index * kPanelRows, n_rows = std::min(kPanelRows, from.rows - first);
  uint8_t* panel = const_cast<uint8_t*>(to.data) + static_cast<size_t>(panel_index) * to.panel_bytes;
  std::memset(panel, 0, to.panel_bytes);
  T* elements = reinterpret_cast<T*>(panel);
  constexpr int kChunk = 64;
  const bool as_is = from.type == to.type;
  for (int k = 0; k < from.cols; k += kChunk) {
    const int n = std::min(kChunk, from.cols - k);
    for (int r = 0; r < n_rows; ++r) {
      const std::byte* in = from.bytes.data() + (first + r) * from.row_bytes() + quant_bytes(from.type, k);
      T values[kChunk];
      if (as_is) {
        std::memcpy(static_cast<void*>(values), in, n * sizeof(T));
      } else {
        float floats[kChunk];
        dequantize_row(from.type, in, floats, n);
        for (int i = 0; i < n; ++i) values[i] = from_float<T>(floats[i]);
      }
      for (int i = 0; i < n; ++i) elements[float_index<T>(r, k + i)] = values[i];
    }
  }
}

template <class T>
void unpack_floats(const PanelMatrix& w, int row, float* out) {
  const T* elements =
      reinterpret_cast<const T*>(w.data + static_cast<size_t>(row / kPanelRows) * w.panel_bytes);
  for (int k = 0; k < w.cols; ++k) {
    if constexpr (std::is_same_v<T, float>) {
      out[k] = elements[float_index<T>(row % kPanelRows, k)];
    } else {
      out[k] = penstock::to_float(elements[float_index<T>(row % kPanelRows, k)]);
    }
  }
}

}  // namespace

PanelShape panel_shape(QuantType type, int cols) {
  return quant::visit(type, [&](auto q) -> PanelShape {
    using Q = decltype(q);
    if constexpr (quant::IntegerCoded<Q>) {
      using L = PanelLayout<Q>;
      const int padded = round_up(cols, L::kUnitK);
      return {type == QuantType::kTQ1_0 ? QuantType::kTQ2_0 : type, padded,
              static_cast<size_t>(padded / L::kUnitK) * L::kUnitBytes, needs_row_scales<Q>()};
    } else {
      const int padded = round_up(cols, 32);
      if (type == QuantType::kBF16) return {type, padded, static_cast<size_t>(padded) * 32, false};
      if (type == QuantType::kF16 || type == QuantType::kF8E4M3 || type == QuantType::kF8E5M2) {
        return {QuantType::kF16, padded, static_cast<size_t>(padded) * 32, false};
      }
      return {QuantType::kF32, padded, static_cast<size_t>(padded) * 64, false};
    }
  });
}

void pack_panels(const QuantizedMatrix& from, const PanelMatrix& to, float* row_scales, int panel_begin,
                 int panel_end) {
  quant::visit(from.type, [&](auto q) {
    using Q = decltype(q);
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      if constexpr (quant::IntegerCoded<Q>) {
        pack_codes<Q>(from, to, row_scales, panel);
      } else if (to.type == QuantType::kBF16) {
        pack_floats<BFloat16>(from, to, panel);
      } else if (to.type == QuantType::kF16) {
        pack_floats<Half>(from, to, panel);
      } else {
        pack_floats<float>(from, to, panel);
      }
    }
  });
}

void unpack_row(const PanelMatrix& w, int row, float* out) {
  PENSTOCK_CHECK(row >= 0 && row < w.rows);
  quant::visit(w.type, [&](auto q) {
    using Q = decltype(q);
    if constexpr (quant::IntegerCoded<Q>) {
      unpack_codes<Q>(w, row, out);
    } else if (w.type == QuantType::kBF16) {
      unpack_floats<BFloat16>(w, row, out);
    } else if (w.type == QuantType::kF16) {
      unpack_floats<Half>(w, row, out);
    } else {
      unpack_floats<float>(w, row, out);
    }
  });
}

}  // namespace penstock
