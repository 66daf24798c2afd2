// Rows of each encoding for the packer. Values are kept exactly: reading them back gives those of
// dequantize_row().
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "ops/cuda/packed_weight.h"
#include "quant/all.h"

namespace penstock::cuda {
namespace {

int padded(int n, int to) { return (n + to - 1) / to * to; }

// Returns the group size of the packed scales: the largest of 16, 32 and 64 inputs that divides the
// encoding's group size; 0: none does.
int kept_group(int group) {
  return group % 64 == 0 ? 64 : group % 32 == 0 ? 32 : group % 16 == 0 ? 16 : 0;
}

void set_code_layout(WeightOnDevice& w) {
  w.form = WeightForm::kCodes;
  set_layout(w);
}

void set_float_layout(WeightOnDevice& w, WeightForm form) {
  w.form = form;
  set_layout(w);
}

// Copies n elements of a row in an encoding without codes (F32, F16, BF16), or dequantizes them to
// F32.
void floats_as(QuantType type, WeightForm form, const std::byte* in, std::byte* out, int n) {
  const bool as_is = (type == QuantType::kF32 && form == WeightForm::kF32) ||
                     (type == QuantType::kF16 && form == WeightForm::kF16) ||
                     (type == QuantType::kBF16 && form == WeightForm::kBF16);
  if (as_is) {
    std::memcpy(out, in, quant_bytes(type, n));
  } else {
    dequantize_row(type, in, reinterpret_cast<float*>(out), n);
  }
}

template <class Q>
constexpr int code_bits() {
  if constexpr (Q::kIsCodebook) return 4;
  return Q::kBits == 7 ? 8 : Q::kBits;
}

// Whether all scales of the encoding are FP16 in its files; others are kept in
// F32.
template <class Q>
constexpr bool scales_are_half() {
  if constexpr (requires(const typename Q::Block& b) { b.scale; })
    return std::is_same_v<std::remove_cvref_t<decltype(Q::Block::scale)>, Half>;
  return Q::kType == QuantType::kNVFP4;
}

template <class Q>
void read_codes(const std::byte* row, int cols, int group, RowCodes& out) {
  constexpr int kGroups = quant::kGroups<Q>;
  const int n_blocks = cols / Q::kBlockSize, repeat = Q::kGroupSize / group;
  out = {};
  out.codes.resize(static_cast<size_t>(cols));
  for (int b = 0; b < n_blocks; ++b) {
    typename Q::Block block;  // copied, since blocks in files may be misaligned
    std::memcpy(static_cast<void*>(&block), row + static_cast<size_t>(b) * sizeof block,
                sizeof block);
    float scales[kGroups], offsets[kGroups] = {};
    Q::codes(block, out.codes.data() + static_cast<ptrdiff_t>(b) * Q::kBlockSize, scales, offsets);
    if constexpr (Q::kHasSuperScales) {
      float scale = 0, min = 0;
      int8_t sub_scales[kGroups], sub_mins[kGroups] = {};
      Q::super_scales(block, scale, min, sub_scales, sub_mins);
      out.factors.push_back(scale), out.min_factors.push_back(min);
      out.sub_scales.insert(out.sub_scales.end(), sub_scales, sub_scales + kGroups);
      out.sub_mins.insert(out.sub_mins.end(), sub_mins, sub_mins + kGroups);
    } else {
      for (int g = 0; g < kGroups; ++g) {
        out.scales.insert(out.scales.end(), static_cast<size_t>(repeat), scales[g]);
        out.offsets.insert(out.offsets.end(), static_cast<size_t>(repeat), offsets[g]);
      }
    }
  }
}

template <class Q>
void set_codes(const QuantizedMatrix& matrix, WeightSource& source) {
  WeightOnDevice& w = source.shape;
  w.bits = code_bits<Q>();
  w.group = kept_group(Q::kGroupSize);
  w.offsets = Q::kHasOffset;
  w.unit = quant::kUnit<Q>;
  w.scales = Q::kHasSuperScales     ? ScaleForm::kSuper
             : scales_are_half<Q>() ? ScaleForm::kHalf
                                    : ScaleForm::kFloat;
  set_code_layout(w);
  for (int code = 0; code < 1 << w.bits; ++code)
    source.levels.push_back(static_cast<float>(Q::level(code)));
  const int group = w.group;
  source.codes = [matrix, group](int row, RowCodes& out) {
    read_codes<Q>(matrix.bytes.data() + static_cast<size_t>(row) * matrix.stride(), matrix.cols,
                  group, out);
  };
}

// FP8: the code of an element is its bits, and `levels` has the values of all 256.
void set_f8(const QuantizedMatrix& matrix, WeightSource& source) {
  WeightOnDevice& w = source.shape;
  w.bits = 8, w.group = 64, w.scales = ScaleForm::kHalf;
  set_code_layout(w);
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::byte>(code);
    dequantize_row(matrix.type, &byte, &source.levels.emplace_back(), 1);
  }
  source.codes = [matrix](int row, RowCodes& out) {
    const std::byte* const in = matrix.bytes.data() + static_cast<size_t>(row) * matrix.stride();
    out.codes.resize(static_cast<size_t>(matrix.cols));
    std::memcpy(out.codes.data(), in, out.codes.size());
    out.scales.assign(static_cast<size_t>(padded(matrix.cols, 64) / 64), 1.0f);
  };
}

bool all_half(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float v) { return to_float(to_half(v)) == v; });
}

}  // namespace

void set_layout(WeightOnDevice& w) {
  const bool codes = w.form == WeightForm::kCodes, super = codes && w.scales == ScaleForm::kSuper;
  w.padded_cols = padded(w.cols, super ? WeightOnDevice::kSuperCols : kUnitCols);
  if (!codes) {
    w.tile_bytes = int64_t{kTileRows} * w.padded_cols * (w.form == WeightForm::kF32 ? 4 : 2);
    return;
  }
  const int per_scale = w.scale_bytes() + (w.offsets || w.zeros ? w.extra_bytes() : 0);
  w.unit_bytes = w.code_bytes() + kTileRows * w.groups_per_unit() * per_scale;
  const int64_t factors =
      super ? int64_t{w.padded_cols} / WeightOnDevice::kSuperCols * kTileRows * (w.offsets ? 4 : 2)
            : 0;
  w.tile_bytes = (int64_t{w.n_units()} * w.unit_bytes + factors + 127) / 128 * 128;
}

WeightParts::WeightParts(const WeightOnDevice& shape, bool has_order)
    : tiles_(static_cast<size_t>(shape.tile_bytes) *
             static_cast<size_t>((shape.rows + kTileRows - 1) / kTileRows)),
      levels_(shape.form == WeightForm::kCodes ? sizeof(float) << shape.bits : 0),
      order_(has_order ? static_cast<size_t>(shape.cols) * sizeof(int32_t) : 0) {}

Result<WeightSource> source_of(const QuantizedMatrix& matrix) {
  const int block = quant_info(matrix.type).block_size;
  if (matrix.rows <= 0 || matrix.cols <= 0 || matrix.cols % block != 0 ||
      matrix.bytes.size() < matrix.size_bytes()) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "weight of type {}: expected rows of a multiple of {} elements, got {} x {} in {} bytes",
        quant_info(matrix.type).name, block, matrix.rows, matrix.cols, matrix.bytes.size());
  }
  WeightSource source;
  source.shape.rows = matrix.rows, source.shape.cols = matrix.cols;
  quant::visit(matrix.type, [&](auto q) {
    using Q = decltype(q);
    if constexpr (quant::IntegerCoded<Q>) {
      set_codes<Q>(matrix, source);
    } else if constexpr (std::is_same_v<Q, quant::F8E4M3> || std::is_same_v<Q, quant::F8E5M2>) {
      set_f8(matrix, source);
    } else {
      const WeightForm form = std::is_same_v<Q, quant::BF16>  ? WeightForm::kBF16
                              : std::is_same_v<Q, quant::F16> ? WeightForm::kF16
                                                              : WeightForm::kF32;
      set_float_layout(source.shape, form);
      source.floats = [matrix, form](int row, std::byte* out) {
        floats_as(matrix.type, form,
                  matrix.bytes.data() + static_cast<size_t>(row) * matrix.stride(), out,
                  matrix.cols);
      };
    }
  });
  return source;
}

Result<WeightSource> source_of(const GroupedMatrix& matrix, int first_row, int n_rows) {
  if (first_row < 0 || n_rows <= 0 || first_row > matrix.rows - n_rows) {
    return errorf(ErrorCode::kInvalidArgument,
                  "weight of {} rows: expected some of them, got {} from {} on", matrix.rows,
                  n_rows, first_row);
  }
  WeightSource source;
  WeightOnDevice& w = source.shape;
  w.rows = n_rows, w.cols = matrix.cols;
  using Kind = ActivationCoding::Kind;
  const ActivationCoding& coding = matrix.activations;
  if (coding.kind == Kind::kInt8Static) source.rounding = {true, coding.static_scale};
  if (coding.kind == Kind::kInt8PerToken && coding.outlier_threshold <= 0)
    source.rounding = {true, 0.0f};
  w.group = matrix.n_groups() == 1 ? 64 : kept_group(matrix.group_size);
  // no group size divides the encoding's: values are kept as floats
  if (w.group == 0) {
    set_float_layout(w, WeightForm::kF32);
    source.floats = [&matrix, first_row](int row, std::byte* out) {
      matrix.dequantize(first_row + row, 1, reinterpret_cast<float*>(out));
    };
    return source;
  }
  w.bits = matrix.bits == 7 ? 8 : matrix.bits;
  w.zeros = !matrix.zeros.empty();
  w.scales = all_half(matrix.scales) ? ScaleForm::kHalf : ScaleForm::kFloat;
  set_code_layout(w);
  for (int code = 0; code < 1 << w.bits; ++code) {
    const auto at = static_cast<size_t>(code);
    const float level = matrix.codebook.empty()       ? static_cast<float>(code)
                        : at < matrix.codebook.size() ? matrix.codebook[at]
                                                      : 0.0f;
    source.levels.push_back(matrix.zeros.empty() ? level - static_cast<float>(matrix.uniform_zero)
                                                 : level);
  }
  source.input_order = matrix.input_order;
  const int kept = w.group;
  source.codes = [&matrix, first_row, kept](int row, RowCodes& out) {
    const int n_groups = matrix.n_groups(), n_kept = padded(matrix.cols, kept) / kept;
    out.codes.resize(static_cast<size_t>(matrix.cols));
    matrix.codes(first_row + row, 1, out.codes.data());
    out.scales.resize(static_cast<size_t>(n_kept)), out.zeros.resize(static_cast<size_t>(n_kept));
    for (int g = 0; g < n_kept; ++g) {
      const size_t from = static_cast<size_t>(first_row + row) * static_cast<size_t>(n_groups) +
                          static_cast<size_t>(g * kept / matrix.group_size);
      out.scales[static_cast<size_t>(g)] = matrix.scales[from];
      if (!matrix.zeros.empty()) out.zeros[static_cast<size_t>(g)] = matrix.zeros[from];
    }
  };
  return source;
}

}  // namespace penstock::cuda
