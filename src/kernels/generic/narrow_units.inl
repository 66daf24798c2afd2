// Units of 4-bit codes (KvFormat::kI4): rotation, codes, and their INT8 form. Included after
// turn_keys.inl.
//
// A key or value x is rotated in blocks of 2^n features, H·S·x: S fixed signs, H the normalized
// Hadamard matrix. What stands out in a few features is spread over all of them. Of the rotated row,
// each group of 32 features has a whole factor f of 1 to 15, and the row one scale s: a feature is
// s · f · code, with codes of -7 to 7. So f · code is a code of 8 bits, and a unit becomes one of
// KvFormat::kI8 without rounding.
#pragma once
#include <utility>

#include "kernels/attention_kernels.h"
#include "kernels/feature_sign.h"
#include "kernels/generic/transpose.inl"

namespace penstock {
namespace {

using FloatLanes = Register<float, 16>;
using CodeLanes = Register<int8_t, 64>;

template <int Stride, int... I>
[[gnu::always_inline]] inline void mix_lanes(FloatLanes& x, std::integer_sequence<int, I...>) {
  constexpr FloatLanes::Lanes kSigns = {((I & Stride) == 0 ? 1.0f : -1.0f)...};
  const FloatLanes::Lanes other = __builtin_shufflevector(x.lanes, x.lanes, (I ^ Stride)...);
  x.lanes = x.lanes * kSigns + other;
}

// Multiplies n numbers, a power of two of at least 16, by the Hadamard matrix without its factor.
inline void mix_wide(float* x, int n) {
  constexpr auto kAll = std::make_integer_sequence<int, 16>();
  for (int i = 0; i < n; i += 16) {
    FloatLanes lanes;
    __builtin_memcpy(&lanes, x + i, sizeof lanes);
    mix_lanes<1>(lanes, kAll);
    mix_lanes<2>(lanes, kAll);
    mix_lanes<4>(lanes, kAll);
    mix_lanes<8>(lanes, kAll);
    __builtin_memcpy(x + i, &lanes, sizeof lanes);
  }
  for (int stride = 16; stride < n; stride *= 2) {
    for (int i = 0; i < n; i += 2 * stride) {
      for (int j = i; j < i + stride; j += 16) {
        FloatLanes a, b;
        __builtin_memcpy(&a, x + j, sizeof a);
        __builtin_memcpy(&b, x + j + stride, sizeof b);
        const FloatLanes sum{a.lanes + b.lanes}, difference{a.lanes - b.lanes};
        __builtin_memcpy(x + j, &sum, sizeof sum);
        __builtin_memcpy(x + j + stride, &difference, sizeof difference);
      }
    }
  }
}

inline void mix(float* x, int n) {
  if (n >= 16) return mix_wide(x, n);
  for (int stride = 1; stride < n; stride *= 2) {
    for (int i = 0; i < n; ++i) {
      if ((i & stride) != 0) continue;
      const float a = x[i], b = x[i + stride];
      x[i] = a + b, x[i + stride] = a - b;
    }
  }
}

// Turns rows of n features forth or back; n is a multiple of `block`, a power of two.
void rotate_row(float* x, int n, int block, bool back) {
  const float factor = 1.0f / __builtin_sqrtf(static_cast<float>(block));
  for (int first = 0; first < n; first += block) {
    float* part = x + first;
    for (int d = 0; d < block && !back; ++d) part[d] *= feature_sign(first + d) * factor;
    mix(part, block);
    for (int d = 0; d < block && back; ++d) part[d] *= feature_sign(first + d) * factor;
  }
}

inline float most_of(const float* x, int n) {
  float most = 0.0f;
  for (int d = 0; d < n; ++d) {
    const float a = x[d] < 0.0f ? -x[d] : x[d];
    most = a > most ? a : most;
  }
  return most;
}

// Rounds a rotated row. code(d, c): called for every feature; factors: `stride` bytes apart. Returns the
// scale.
template <class F>
inline float store_codes(const float* x, int n, uint8_t* factors, F&& code) {
  constexpr float kMostCode = 7.0f, kMostFactor = 15.0f;
  const float scale = most_of(x, n) / (kMostCode * kMostFactor);
  const float inverse = scale > 1e-30f ? 1.0f / scale : 0.0f;
  for (int first = 0; first < n; first += kFactorFeatures) {
    const int end = n < first + kFactorFeatures ? n : first + kFactorFeatures;
    const float wanted = most_of(x + first, end - first) * inverse / kMostCode;
    int factor = static_cast<int>(wanted);
    factor += static_cast<float>(factor) < wanted ? 1 : 0;
    factor = factor < 1 ? 1 : factor > 15 ? 15 : factor;
    factors[first / kFactorFeatures * kUnitTokens] = static_cast<uint8_t>(factor);
    for (int d = first; d < end; ++d) {
      const float value = x[d] * inverse / static_cast<float>(factor);
      int c = static_cast<int>(value + (value < 0.0f ? -0.5f : 0.5f));
      c = c > 7 ? 7 : c < -7 ? -7 : c;
      code(d, static_cast<uint8_t>(c & 15));
    }
  }
  return scale > 1e-30f ? scale : 0.0f;
}

// AttentionKernels::store of this format.
void store_narrow(const KvUnitLayout& layout, const float* k, const float* v, std::byte* unit,
                  int lane) {
  alignas(64) float row[kMostNarrowDim];
  auto* bytes = reinterpret_cast<uint8_t*>(unit);
  const auto scale_at = [&](int64_t offset) {
    return reinterpret_cast<float*>(unit + offset) + lane;
  };
  for (int d = 0; d < layout.padded_dim; d += 8) __builtin_memset(bytes + d * 8 + lane * 4, 0, 4);
  __builtin_memcpy(row, k, static_cast<size_t>(layout.head_dim) * sizeof(float));
  rotate_row(row, layout.head_dim, layout.rotated, false);
  *scale_at(layout.k_scales) =
      store_codes(row, layout.head_dim, bytes + layout.k_factors + lane, [&](int d, uint8_t code) {
        bytes[d / 8 * 64 + lane * 4 + d % 4] |= static_cast<uint8_t>(code << d % 8 / 4 * 4);
      });
  if (layout.values_in_keys) return;
  uint8_t* const values = bytes + layout.v_offset + int64_t{lane / 4} * layout.value_groups() * 64;
  for (int i = 0; i < layout.value_groups() * 16; ++i) values[i * 4 + lane % 4] = 0;
  __builtin_memcpy(row, v, static_cast<size_t>(layout.value_dim) * sizeof(float));
  rotate_row(row, layout.value_dim, layout.rotated_values, false);
  *scale_at(layout.v_scales) =
      store_codes(row, layout.value_dim, bytes + layout.v_factors + lane, [&](int d, uint8_t code) {
        values[(d / 32 * 16 + d % 16) * 4 + lane % 4] |=
            static_cast<uint8_t>(code << d % 32 / 16 * 4);
      });
}

// The low and the high codes of 64 bytes, with their factors.
[[gnu::always_inline]] inline void widen_bytes(const std::byte* from, const CodeLanes& factors,
                                               CodeLanes& low, CodeLanes& high) {
  Register<uint8_t, 64> x;
  load_register(from, x);
  using Lanes = CodeLanes::Lanes;
  low.lanes = reinterpret_cast<Lanes>(((x.lanes & 15) ^ 8) - 8) * factors.lanes;
  high.lanes = reinterpret_cast<Lanes>(((x.lanes >> 4) ^ 8) - 8) * factors.lanes;
}

template <int... I>
[[gnu::always_inline]] inline CodeLanes factors_of_tokens(const std::byte* factors,
                                                          std::integer_sequence<int, I...>) {
  Register<int8_t, 16> x;
  load_register(factors, x);
  return {__builtin_shufflevector(x.lanes, x.lanes, (I / 4)...)};
}
template <int... I>
[[gnu::always_inline]] inline CodeLanes factors_of_four(const std::byte* factors,
                                                        std::integer_sequence<int, I...>) {
  Register<int8_t, 4> x;
  load_register(factors, x);
  return {__builtin_shufflevector(x.lanes, x.lanes, (I % 4)...)};
}

// Writes the unit as one of `wide`, a layout of KvFormat::kI8 with the same features.
void widen_unit(const KvUnitLayout& layout, const KvUnitLayout& wide, const std::byte* unit,
                std::byte* to) {
  constexpr auto kAll = std::make_integer_sequence<int, 64>();
  for (int d = 0; d < layout.padded_dim; d += 8) {
    const CodeLanes factors =
        factors_of_tokens(unit + layout.k_factors + d / kFactorFeatures * kUnitTokens, kAll);
    CodeLanes low, high;
    widen_bytes(unit + d * 8, factors, low, high);
    __builtin_memcpy(to + d * kUnitTokens, &low, 64);
    __builtin_memcpy(to + (d + 4) * kUnitTokens, &high, 64);
  }
  __builtin_memcpy(to + wide.k_scales, unit + layout.k_scales, kUnitTokens * sizeof(float));
  if (layout.values_in_keys) return;
  const int dim = wide.padded_value_dim, n_groups = layout.value_groups();
  for (int four = 0; four < kUnitTokens / 4; ++four) {
    for (int g = 0; g < n_groups; ++g) {
      const CodeLanes factors =
          factors_of_four(unit + layout.v_factors + g * kUnitTokens + four * 4, kAll);
      CodeLanes low, high;
      widen_bytes(unit + layout.v_offset + (int64_t{four} * n_groups + g) * 64, factors, low, high);
      std::byte* out = to + wide.v_offset + (int64_t{four} * dim + g * 32) * 4;
      __builtin_memcpy(out, &low, 64);
      if (g * 32 + 16 < dim) __builtin_memcpy(out + 64, &high, 64);
    }
  }
  __builtin_memcpy(to + wide.v_scales, unit + layout.v_scales, kUnitTokens * sizeof(float));
}

}  // namespace
}  // namespace penstock
