// Portable matrix products: the specification of all others, used on machines without a table of
// their own.
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/gemm_kernels.h"
#include "kernels/pack/panel_planes.h"
#include "kernels/scalar/plans.h"
#include "kernels/scalar/tables.h"

namespace penstock {
namespace {

constexpr int kRowsAtOnce = 16;  // rows of activations per decoded piece of a panel

float half_at(const uint8_t* p, int i) {
  Half half;
  std::memcpy(&half, p + 2 * i, 2);
  return to_float(half);
}

// Writes sums[m][r] of the 16 rows of a panel to the output.
void store_sums(const PanelMatrix& w, const float (&sums)[kRowsAtOnce][kPanelRows], int n,
                int panel, int row, const GemmOutput& out) {
  for (int m = 0; m < n; ++m) {
    for (int r = 0; r < kPanelRows && panel * kPanelRows + r < w.rows; ++r) {
      const int feature = panel * kPanelRows + r;
      float sum = sums[m][r];
      if (w.row_scales != nullptr) sum *= w.row_scales[feature];
      if (out.bias != nullptr) sum += out.bias[feature];
      out.values[(row + m) * out.stride + feature] = sum;
    }
  }
}

// 32 columns of a panel, decoded: levels of the codes, scales and offsets of their groups.
template <class Q>
struct Step {
  using L = PanelLayout<Q>;
  static constexpr int kGroup = Q::kGroupSize == 16 ? 16 : 32;

  int16_t levels[kPanelRows][32];
  float scales[32 / kGroup][kPanelRows], offsets[32 / kGroup][kPanelRows];

  void load(const PanelMatrix& w, const uint8_t* unit, int step) {
    for (int r = 0; r < kPanelRows; ++r) {
      uint8_t codes[32];
      load_codes<Q>(unit, step, r, codes);
      for (int k = 0; k < 32; ++k) levels[r][k] = static_cast<int16_t>(level_of<Q>(w, codes[k]));
      for (int g = 0; g < 32 / kGroup; ++g) {
        scales[g][r] = 1.0f;
        load_scale<Q>(unit, L::group_of(step * 32 + g * kGroup), r, scales[g][r], offsets[g][r]);
      }
    }
  }

  void add(const int8_t* x, const ActivationGroup& group, const ActivationHalves& halves,
           float (&sums)[kPanelRows]) const {
    for (int r = 0; r < kPanelRows; ++r) {
      for (int g = 0; g < 32 / kGroup; ++g) {
        int32_t sum = 0;
        for (int k = g * kGroup; k < (g + 1) * kGroup; ++k) sum += levels[r][k] * x[k];
        sums[r] += static_cast<float>(sum) * (scales[g][r] * group.scale);
        if constexpr (Q::kHasOffset)
          sums[r] += offsets[g][r] * (kGroup == 32 ? group.scaled_sum : halves.scaled_sums[g]);
      }
    }
  }

  void add(const int8_t* x, int32_t (&sums)[kPanelRows]) const {
    for (int r = 0; r < kPanelRows; ++r) {
      for (int k = 0; k < 32; ++k) sums[r] += levels[r][k] * x[k];
    }
  }
};

template <class Q>
void int8_gemm(const PanelMatrix& w, const Int8Rows& x, int n_rows, int begin, int end,
               const GemmOutput& out) {
  using L = PanelLayout<Q>;
  for (int panel = begin; panel < end; ++panel) {
    const uint8_t* units = w.data + static_cast<size_t>(panel) * w.panel_bytes;
    for (int row = 0; row < n_rows; row += kRowsAtOnce) {
      const int n = n_rows - row < kRowsAtOnce ? n_rows - row : kRowsAtOnce;
      float sums[kRowsAtOnce][kPanelRows] = {};
      int32_t whole[kRowsAtOnce][kPanelRows] = {};  // used if nothing has scales inside a row
      const auto index = [&](int m, int s) {
        const int b = x.block_rows;
        return (static_cast<ptrdiff_t>((row + m) / b) * x.n_steps + s) * b + (row + m) % b;
      };
      for (int s = 0; s < w.padded_cols / 32; ++s) {
        Step<Q> step;
        step.load(w, units + static_cast<size_t>(s / L::kSteps) * L::kUnitBytes, s % L::kSteps);
        for (int m = 0; m < n; ++m) {
          const ptrdiff_t at = index(m, s);
          if (L::kWholeRow && x.one_scale) {
            step.add(x.values + at * 32, whole[m]);
          } else {
            step.add(x.values + at * 32, x.groups[at], x.halves[at], sums[m]);
          }
        }
      }
      for (int m = 0; L::kWholeRow && x.one_scale && m < n; ++m) {
        for (int r = 0; r < kPanelRows; ++r)
          sums[m][r] = static_cast<float>(whole[m][r]) * x.groups[index(m, 0)].scale;
      }
      store_sums(w, sums, n, panel, row, out);
    }
  }
}

// Decodes one column of the 16 rows of a float panel.
template <class Q>
void load_column(const uint8_t* panel, int k, float (&column)[kPanelRows]) {
  for (int r = 0; r < kPanelRows; ++r) {
    if constexpr (std::is_same_v<Q, panel::F8Row>) {
      column[r] = quant::decode_f8e4m3(panel[16 * static_cast<size_t>(k) + r]) * 0x1p-8f;
    } else if constexpr (std::is_same_v<Q, panel::F8Groups>) {
      const uint8_t* unit = panel + static_cast<size_t>(k / Q::kUnitK) * Q::kUnitBytes;
      float scale;
      std::memcpy(&scale, unit + Q::kScales + 4 * r, sizeof scale);
      column[r] = quant::decode_f8e4m3(unit[16 * (k % Q::kUnitK) + r]) * 0x1p-8f * scale;
    } else if constexpr (std::is_same_v<Q, quant::F32>) {
      std::memcpy(&column[r], panel + 64 * static_cast<size_t>(k) + 4 * r, 4);
    } else if constexpr (std::is_same_v<Q, quant::F16>) {
      column[r] = half_at(panel + 32 * static_cast<size_t>(k), r);
    } else {
      BFloat16 value;
      std::memcpy(&value, panel + 64 * static_cast<size_t>(k / 2) + 4 * r + 2 * (k % 2), 2);
      column[r] = to_float(value);
    }
  }
}

template <class Q>
void float_gemm(const PanelMatrix& w, const FloatRows& x, int n_rows, int begin, int end,
                const GemmOutput& out) {
  for (int panel = begin; panel < end; ++panel) {
    const uint8_t* data = w.data + static_cast<size_t>(panel) * w.panel_bytes;
    for (int row = 0; row < n_rows; row += kRowsAtOnce) {
      const int n = n_rows - row < kRowsAtOnce ? n_rows - row : kRowsAtOnce;
      float sums[kRowsAtOnce][kPanelRows] = {};
      for (int k = 0; k < w.cols; ++k) {
        float column[kPanelRows];
        load_column<Q>(data, k, column);
        for (int m = 0; m < n; ++m) {
          const float value = x.values[(row + m) * x.stride + k];
          for (int r = 0; r < kPanelRows; ++r) sums[m][r] += column[r] * value;
        }
      }
      store_sums(w, sums, n, panel, row, out);
    }
  }
}

float largest(const float* x, int n) {
  float largest = 0;
  for (int i = 0; i < n; ++i) largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
  return largest;
}

void quantize_row(const float* x, int cols, int padded_cols, const ActivationRounding& rounding,
                  int block_rows, int8_t* values, ActivationGroup* groups,
                  ActivationHalves* halves) {
  const bool one_scale = rounding.one_scale();
  const float row_max = rounding.kind == ActivationRounding::Kind::kFixed
                            ? rounding.fixed_scale * 127.0f
                        : one_scale ? largest(x, cols)
                                    : 0.0f;
  for (int k = 0; k < padded_cols; k += 32) {
    const int n = cols - k < 0 ? 0 : cols - k < 32 ? cols - k : 32;
    const float top = one_scale ? row_max : largest(x + k, n);
    // A reciprocal of so small a scale would overflow: the group becomes zero.
    const float inverse = top > 1e-30f ? 127.0f / top : 0.0f;
    int sums[2] = {0, 0};
    for (int i = 0; i < 32; ++i) {
      const float value = i < n ? std::fmax(std::fmin(x[k + i] * inverse, 127.0f), -127.0f) : 0.0f;
      values[i] = static_cast<int8_t>(std::nearbyintf(value));
      sums[i / 16] += values[i];
    }
    ActivationGroup& g = *groups;
    g.scale = inverse > 0 ? top / 127.0f : 0.0f;
    g.scaled_sum = g.scale * static_cast<float>(sums[0] + sums[1]);
    g.negative_sum = -(sums[0] + sums[1]);
    for (int h = 0; h < 2; ++h) {
      halves->negative_sums[h] = -sums[h];
      halves->scaled_sums[h] = g.scale * static_cast<float>(sums[h]);
    }
    values += 32 * block_rows, groups += block_rows, halves += block_rows;
  }
}

template <class Q>
consteval GemmKernels::Int8Gemm int8_entry() {
  if constexpr (panel::Codes<Q>) {
    return &int8_gemm<Q>;
  } else {
    return nullptr;
  }
}

template <class Q>
consteval GemmKernels::FloatGemm float_entry() {
  if constexpr (!panel::Codes<Q> && panel_kind_of<Q>(false) != PanelKind::kNone) {
    return &float_gemm<Q>;
  } else {
    return nullptr;
  }
}

// The kernels of all plans, of integers and floats, for the encoding Q.
template <class Q>
struct KernelsOfPlans {
  static_assert(std::size(scalar::kPlans) == 2);
  static constexpr GemmKernels::Int8Gemm kInt8[] = {int8_entry<Q>(), nullptr};
  static constexpr GemmKernels::FloatGemm kF32[] = {nullptr, float_entry<Q>()};
};

template <class... Q>
consteval GemmKernels make_scalar_kernels(std::tuple<Q...>*) {
  GemmKernels table{"scalar",
                    &quantize_row,
                    scalar::kPlans,
                    {KernelsOfPlans<Q>::kInt8...},
                    {KernelsOfPlans<Q>::kF32...}};
  table.few_panels[static_cast<int>(QuantType::kF32)] = &float_gemm<quant::F32>;
  table.few_panels[static_cast<int>(QuantType::kF16)] = &float_gemm<quant::F16>;
  table.few_panels[static_cast<int>(QuantType::kBF16)] = &float_gemm<quant::BF16>;
  return table;
}

}  // namespace

constinit const GemmKernels kScalarGemmKernels =
    make_scalar_kernels(static_cast<panel::All*>(nullptr));

}  // namespace penstock
