#include "kernels/pack/panel_pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/pack/panel_planes.h"

namespace penstock {
namespace {

// --- Integer codes ---

// Whether rows get a factor: scales that are not FP16 in the file may exceed its range, and levels
// in units other than 1 need one.
template <class Q>
constexpr bool needs_row_scales() {
  if constexpr (quant::kUnit<Q> != 1.0f) {
    return true;
  } else if constexpr (requires(const typename Q::Block& b) { b.scale; }) {
    return !std::is_same_v<decltype(Q::Block::scale), Half>;
  } else {
    return true;
  }
}

// Returns the power of two that scales a row's largest scale to just below FP16's largest power of
// two.
template <class Q>
float find_row_scale(const typename Q::Block* blocks, int n_blocks) {
  if constexpr (quant::kUnit<Q> != 1.0f) return quant::kUnit<Q>;
  float largest = 0;
  for (int b = 0; b < n_blocks; ++b) {
    uint8_t codes[Q::kBlockSize];
    float scales[quant::kGroups<Q>], offsets[quant::kGroups<Q>] = {};
    Q::codes(blocks[b], codes, scales, offsets);
    for (float s : scales) largest = std::max(largest, std::fabs(s));
    for (float o : offsets) largest = std::max(largest, std::fabs(o));
  }
  return power_for_half(largest);
}

// Whether a panel has the file's scales unchanged.
template <class Q>
constexpr bool kSameScales =
    !needs_row_scales<Q>() && !Q::kHasSuperScales && quant::kGroups<Q> == 1;

// Packs one block of row r of a grid into its unit.
template <class Q>
void store_grid_block(const typename Q::Block& block, int r, uint8_t* unit) {
  using L = PanelLayout<Q>;
  float scale = 0, min = 0;
  int8_t odd[quant::kGroups<Q>];
  Q::super_scales(block, scale, min, odd, nullptr);
  for (int g = 0; g < quant::kGroups<Q>; g += 2) {
    unit[L::kScales + 8 * g + r] = static_cast<uint8_t>(odd[g] / 2 | odd[g + 1] / 2 << 4);
  }
  put_half(unit + L::kSuper, r, scale);
  uint16_t points[Q::kBlockSize / Q::kColumns];
  uint8_t signs[Q::kBlockSize / 8];
  Q::points(block, points, signs);
  store_points<Q>(unit, r, points, signs);
}

// Packs the scales of one block of row r into its unit. codes: [kBlockSize], of the block.
template <class Q>
void store_scales(const typename Q::Block& block, int column, int r, float row_scale, uint8_t* unit,
                  uint8_t* codes) {
  using L = PanelLayout<Q>;
  float scales[quant::kGroups<Q>], offsets[quant::kGroups<Q>] = {};
  Q::codes(block, codes, scales, offsets);
  if constexpr (panel::F8Scales<Q>) {
    for (int g = 0; g < quant::kGroups<Q>; ++g) {
      const int group = column % L::kUnitK / Q::kGroupSize + g;
      unit[L::kScales + 16 * group + r] = Q::f8_scale(block, g);
    }
  } else if constexpr (Q::kHasSuperScales) {
    float scale = 0, min = 0;
    int8_t sub_scales[quant::kGroups<Q>], sub_mins[quant::kGroups<Q>] = {};
    Q::super_scales(block, scale, min, sub_scales, sub_mins);
    for (int g = 0; g < quant::kGroups<Q>; ++g) {
      const auto sub = static_cast<uint8_t>(sub_scales[g]);
      unit[L::kScales + 16 * g + r] =
          static_cast<uint8_t>(L::kPackedMins ? sub | sub_mins[g] << 4 : sub);
      if constexpr (L::kSeparateMins)
        unit[L::kOffsets + 16 * g + r] = static_cast<uint8_t>(sub_mins[g]);
    }
    put_half(unit + L::kSuper, r, scale);
    if constexpr (Q::kHasOffset) put_half(unit + L::kSuper + 32, r, min);
  } else if constexpr (kSameScales<Q>) {
    const int group = column % L::kUnitK / Q::kGroupSize;
    std::memcpy(unit + L::kScales + 32 * group + 2 * r, &block.scale, 2);
    if constexpr (Q::kHasOffset)
      std::memcpy(unit + L::kOffsets + 32 * group + 2 * r, &block.offset, 2);
  } else {
    for (int g = 0; g < quant::kGroups<Q>; ++g) {
      const int group = column % L::kUnitK / Q::kGroupSize + g;
      put_half(unit + L::kScales + 32 * group, r, scales[g] / row_scale);
      if constexpr (Q::kHasOffset)
        put_half(unit + L::kOffsets + 32 * group, r, offsets[g] / row_scale);
    }
  }
}

// Packs a block of Q8_0 of every row by transposing the bytes of the file.
void store_byte_blocks(const uint8_t* const* rows, size_t offset, int column, uint8_t* unit) {
  using Q = quant::Q8_0;
  using L = PanelLayout<Q>;
  const int step = column % L::kUnitK / 32;
  // adds 128 to each byte
  constexpr FourWords kToCodes = {0x80808080u, 0x80808080u, 0x80808080u, 0x80808080u};
  for (int r = 0; r < kPanelRows; r += 4) {
    FourWords c[8];
    transpose_words(rows + r, offset + offsetof(Q::Block, values), c);
    transpose_words(rows + r, offset + offsetof(Q::Block, values) + 16, c + 4);
    for (FourWords& words : c) words ^= kToCodes;
    store_words<Q>(unit + step * L::kStepBytes, r, c);
  }
  for (int r = 0; r < kPanelRows; ++r)
    std::memcpy(unit + L::kScales + 32 * step + 2 * r, rows[r] + offset, 2);
}

template <class Q>
void pack_codes(const QuantizedMatrix& from, const PanelMatrix& to, float* row_scales,
                int panel_index) {
  using L = PanelLayout<Q>;
  const size_t stride = from.stride();
  const int n_blocks = from.cols / Q::kBlockSize, first = panel_index * kPanelRows;
  const int n_rows = std::min(kPanelRows, from.rows - first);
  auto* panel = const_cast<uint8_t*>(to.data) + static_cast<size_t>(panel_index) * to.panel_bytes;
  if (n_rows < kPanelRows || from.cols < to.padded_cols || L::kEnd < L::kUnitBytes)
    std::memset(panel, 0, to.panel_bytes);
  const uint8_t* rows[kPanelRows];
  float scales[kPanelRows];
  for (int r = 0; r < kPanelRows; ++r) {
    scales[r] = 1.0f;
    if (r < n_rows) {
      rows[r] = reinterpret_cast<const uint8_t*>(from.bytes.data()) + (first + r) * stride;
      if constexpr (needs_row_scales<Q>())
        scales[r] =
            find_row_scale<Q>(reinterpret_cast<const typename Q::Block*>(rows[r]), n_blocks);
    }
    if (row_scales != nullptr) row_scales[first + r] = scales[r];
  }
  alignas(64) uint8_t codes[kPanelRows][Q::kBlockSize] = {};  // rows that do not exist are zero
  const uint8_t* code_rows[kPanelRows];
  for (int r = 0; r < kPanelRows; ++r) code_rows[r] = codes[r];
  for (int b = 0; b < n_blocks; ++b) {
    const int column = b * Q::kBlockSize;
    uint8_t* unit = panel + static_cast<size_t>(column / L::kUnitK) * L::kUnitBytes;
    if constexpr (std::is_same_v<Q, quant::Q8_0>) {
      if (n_rows == kPanelRows) {
        store_byte_blocks(rows, b * sizeof(typename Q::Block), column, unit);
        continue;
      }
    }
    for (int r = 0; r < n_rows; ++r) {
      typename Q::Block block;  // copied, since blocks in files may be misaligned
      std::memcpy(static_cast<void*>(&block), rows[r] + b * sizeof block, sizeof block);
      if constexpr (L::kGrid) {
        store_grid_block<Q>(block, r, unit);
      } else {
        store_scales<Q>(block, column, r, scales[r], unit, codes[r]);
      }
    }
    for (int s = 0; s < Q::kBlockSize / 32 && !L::kGrid; ++s) {
      const int step = column % L::kUnitK / 32 + s;
      store_codes_of_rows<Q>(unit + step * L::kStepBytes, code_rows, size_t{32} * s);
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
    load_codes<Q>(u, step, r, codes);
    for (int half = 0; half < 32; half += 16) {  // the smallest groups have 16 columns
      float scale = 1, offset = 0;
      load_scale<Q>(u, L::group_of(step * 32 + half), r, scale, offset);
      for (int i = half; i < half + 16 && k + i < w.cols; ++i) {
        out[k + i] = scale * row_scale * level_of<Q>(w, codes[i]);
        if constexpr (Q::kHasOffset) out[k + i] += offset * row_scale;
      }
    }
  }
}

// --- Floats ---

// Returns the index of element (r, k) of a panel of T.
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
  uint8_t* panel =
      const_cast<uint8_t*>(to.data) + static_cast<size_t>(panel_index) * to.panel_bytes;
  std::memset(panel, 0, to.panel_bytes);
  T* elements = reinterpret_cast<T*>(panel);
  constexpr int kChunk = 64;
  const bool as_is = panel_type(from.type) == to.type;
  for (int k = 0; k < from.cols; k += kChunk) {
    const int n = std::min(kChunk, from.cols - k);
    for (int r = 0; r < n_rows; ++r) {
      const std::byte* in =
          from.bytes.data() + (first + r) * from.stride() + quant_bytes(from.type, k);
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

// Two columns of a BF16 row are one word of its panel, so that the panel is the transpose of the
// rows' words.
void pack_bf16(const QuantizedMatrix& from, const PanelMatrix& to, int panel_index) {
  const int first = panel_index * kPanelRows, n_rows = std::min(kPanelRows, from.rows - first);
  auto* panel = const_cast<uint8_t*>(to.data) + static_cast<size_t>(panel_index) * to.panel_bytes;
  const size_t stride = from.stride();
  constexpr int kColumns = 32;  // at a time: 64 bytes of a row, 16 lines of the panel
  alignas(64) uint8_t rest[kPanelRows][2 * kColumns] = {};  // zero padding
  const uint8_t *rows[kPanelRows], *rest_rows[kPanelRows];
  for (int r = 0; r < kPanelRows; ++r) {
    rest_rows[r] = rest[r];
    rows[r] = r < n_rows
                  ? reinterpret_cast<const uint8_t*>(from.bytes.data()) + (first + r) * stride
                  : rest[r];
  }
  for (int k = 0; k < to.padded_cols; k += kColumns) {
    const bool whole = n_rows == kPanelRows && k + kColumns <= from.cols;
    const auto offset = 2 * static_cast<size_t>(k);
    for (int r = 0; r < n_rows && !whole; ++r) {
      const int n = std::clamp(from.cols - k, 0, kColumns);
      std::memset(rest[r], 0, sizeof rest[r]);
      std::memcpy(rest[r], rows[r] + offset, 2 * static_cast<size_t>(n));
    }
    uint8_t* lines = panel + static_cast<size_t>(k) * 32;
    for (int r = 0; r < kPanelRows; r += 4) {
      for (int w = 0; w < kColumns / 2; w += 4) {
        FourWords columns[4];
        const size_t at = sizeof(uint32_t) * static_cast<size_t>(w);
        transpose_words((whole ? rows : rest_rows) + r, whole ? offset + at : at, columns);
        for (int i = 0; i < 4; ++i)
          std::memcpy(lines + 64 * (w + i) + 4 * r, &columns[i], sizeof columns[i]);
      }
    }
  }
}

template <class T>
void unpack_floats(const PanelMatrix& w, int row, float* out) {
  const float row_scale = w.row_scales != nullptr ? w.row_scales[row] : 1.0f;
  const T* elements =
      reinterpret_cast<const T*>(w.data + static_cast<size_t>(row / kPanelRows) * w.panel_bytes);
  for (int k = 0; k < w.cols; ++k) {
    if constexpr (std::is_same_v<T, float>) {
      out[k] = elements[float_index<T>(row % kPanelRows, k)] * row_scale;
    } else {
      out[k] = penstock::to_float(elements[float_index<T>(row % kPanelRows, k)]) * row_scale;
    }
  }
}

void unpack_f8(const PanelMatrix& w, int row, float* out) {
  const uint8_t* codes =
      w.data + static_cast<size_t>(row / kPanelRows) * w.panel_bytes + row % kPanelRows;
  const float row_scale = w.row_scales[row] * 0x1p-8f;
  for (int k = 0; k < w.cols; ++k) out[k] = quant::decode_f8e4m3(codes[16 * k]) * row_scale;
}

void unpack_f8_groups(const PanelMatrix& w, int row, float* out) {
  using Q = panel::F8Groups;
  const uint8_t* panel = w.data + static_cast<size_t>(row / kPanelRows) * w.panel_bytes;
  for (int k = 0; k < w.cols; ++k) {
    const uint8_t* unit = panel + static_cast<size_t>(k / Q::kUnitK) * Q::kUnitBytes;
    float scale;
    std::memcpy(&scale, unit + Q::kScales + 4 * (row % kPanelRows), sizeof scale);
    out[k] =
        quant::decode_f8e4m3(unit[16 * (k % Q::kUnitK) + row % kPanelRows]) * (scale * 0x1p-8f);
  }
}

}  // namespace

PanelSize panel_size(PanelType type, int cols) {
  return panel::visit(type, [&](auto q) -> PanelSize {
    using Q = decltype(q);
    if constexpr (panel::Codes<Q>) {
      using L = PanelLayout<Q>;
      const int padded = round_up(cols, L::kUnitK);
      return {padded, static_cast<size_t>(padded / L::kUnitK) * L::kUnitBytes};
    } else if constexpr (std::is_same_v<Q, panel::F8Groups>) {
      const int padded = round_up(cols, Q::kUnitK);
      return {padded, static_cast<size_t>(padded / Q::kUnitK) * Q::kUnitBytes};
    } else {
      constexpr size_t kColumnBytes =
          std::is_same_v<Q, quant::F32>                                     ? 64
          : std::is_same_v<Q, quant::F16> || std::is_same_v<Q, quant::BF16> ? 32
          : std::is_same_v<Q, panel::F8Row>                                 ? 16
                                                                            : 0;
      const int padded = kColumnBytes == 0 ? 0 : round_up(cols, 32);
      return {padded, static_cast<size_t>(padded) * kColumnBytes};
    }
  });
}

PanelShape panel_shape(QuantType type, int cols) {
  return quant::visit(type, [&](auto q) -> PanelShape {
    using Q = decltype(q);
    QuantType packed = type;
    bool row_scales = false;
    if constexpr (quant::IntegerCoded<Q>) {
      if (type == QuantType::kTQ1_0) packed = QuantType::kTQ2_0;
      row_scales = needs_row_scales<Q>();
    } else if (type == QuantType::kF8E4M3 || type == QuantType::kF8E5M2) {
      packed = QuantType::kF16;
    } else if (type != QuantType::kBF16 && type != QuantType::kF16) {
      packed = QuantType::kF32;
    }
    const PanelSize size = panel_size(panel_type(packed), cols);
    return {panel_type(packed), size.padded_cols, size.bytes, row_scales};
  });
}

void pack_panels(const QuantizedMatrix& from, const PanelMatrix& to, float* row_scales,
                 int panel_begin, int panel_end) {
  quant::visit(from.type, [&](auto q) {
    using Q = decltype(q);
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      if constexpr (quant::IntegerCoded<Q>) {
        pack_codes<Q>(from, to, row_scales, panel);
      } else if (to.type == panel_type(QuantType::kBF16)) {
        pack_bf16(from, to, panel);
      } else if (to.type == panel_type(QuantType::kF16)) {
        pack_floats<Half>(from, to, panel);
      } else {
        pack_floats<float>(from, to, panel);
      }
    }
  });
}

void unpack_row(const PanelMatrix& w, int row, float* out) {
  PENSTOCK_CHECK(row >= 0 && row < w.rows);
  panel::visit(w.type, [&](auto q) {
    using Q = decltype(q);
    if constexpr (panel::Codes<Q>) {
      unpack_codes<Q>(w, row, out);
    } else if constexpr (std::is_same_v<Q, panel::F8Row>) {
      unpack_f8(w, row, out);
    } else if constexpr (std::is_same_v<Q, panel::F8Groups>) {
      unpack_f8_groups(w, row, out);
    } else if constexpr (std::is_same_v<Q, quant::BF16>) {
      unpack_floats<BFloat16>(w, row, out);
    } else if constexpr (std::is_same_v<Q, quant::F16>) {
      unpack_floats<Half>(w, row, out);
    } else {
      unpack_floats<float>(w, row, out);
    }
  });
}

}  // namespace penstock
