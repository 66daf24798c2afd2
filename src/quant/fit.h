// Searches for the scale (and offset) of a group that minimize the weighted squared error of its
// rounded values.
#pragma once
#include <algorithm>
#include <cmath>

#include "quant/block.h"

namespace penstock::quant {

// Packs low nibbles of 32 codes: code j in the low half of byte j, code j + 16 in the high half.
inline void pack_nibbles(const uint8_t* codes, uint8_t* out) {
  for (int j = 0; j < 16; ++j)
    out[j] = static_cast<uint8_t>((codes[j] & 0x0f) | codes[j + 16] << 4);
}

// Rounds to the nearest integer in [low, high], ties to even; clamps first. NaN gives low.
inline float round_clamped(float value, float low, float high) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it drops the fraction
  value = value > low ? value : low;
  value = value < high ? value : high;
  return (value + kShift) - kShift;
}

// For ascending levels: table by which the nearest is found from the integer below a value.
template <const std::array<int8_t, 16>& Levels>
inline constexpr auto kFirstCandidate = [] {
  // by value + 128: largest index with a level of at most the value, or 0
  std::array<uint8_t, 256> table = {};
  for (int value = -128; value < 128; ++value) {
    int index = 0;
    while (index < 15 && Levels[static_cast<size_t>(index) + 1] <= value) ++index;
    table[static_cast<size_t>(value + 128)] = static_cast<uint8_t>(index);
  }
  return table;
}();

// Returns the code whose level is nearest to value (in units of the scale).
template <class Q>
uint8_t nearest_code(float value) {
  if constexpr (Q::kIsCodebook) {
    const float clamped = value > -128.0f ? (value < 127.0f ? value : 127.0f) : -128.0f;
    const int whole = static_cast<int>(clamped + 128.0f);
    const uint8_t below = kFirstCandidate<Q::kCodebook>[static_cast<size_t>(whole)];
    if (below == 15) return below;
    const float middle = 0.5f * static_cast<float>(Q::level(below) + Q::level(below + 1));
    return clamped > middle ? static_cast<uint8_t>(below + 1) : below;
  } else {
    constexpr float kLow = -Q::kBias;
    constexpr float kHigh = (1 << Q::kBits) - 1 - Q::kBias;
    return static_cast<uint8_t>(round_clamped(value, kLow, kHigh) + static_cast<float>(Q::kBias));
  }
}

template <class Q>
float nearest_level(float value) {
  if constexpr (Q::kIsCodebook) {
    return static_cast<float>(Q::level(nearest_code<Q>(value)));
  } else {
    return round_clamped(value, -Q::kBias, (1 << Q::kBits) - 1 - Q::kBias);
  }
}

inline float reciprocal(float value) { return value != 0 ? 1.0f / value : 0.0f; }

// Returns the element of largest magnitude, with its sign.
inline float signed_max(const float* x, int n) {
  float max = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(max)) max = x[i];
  }
  return max;
}

// Computes weights of the squared errors of a block: the importance, if given, times a factor that
// grows with the element's magnitude (errors of large weights cost more in practice than their
// squares suggest).
inline void error_weights(const float* x, const float* importance, int n, float* weights) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  const float mean_square = sum / static_cast<float>(n);
  for (int i = 0; i < n; ++i) {
    weights[i] =
        std::sqrt(mean_square + x[i] * x[i]) * (importance != nullptr ? importance[i] : 1.0f);
  }
}

// Returns the scale s for x[i] ~ s * level. It may be negative, since codes are asymmetric.
template <class Q>
float fit_scale(const float* x, const float* weights, int n) {
  const float max = signed_max(x, n);
  if (max == 0) return 0;
  float best_gain = 0;
  float best_scale = 0;
  const auto try_inverse = [&](float inverse) {
    float xl = 0;
    float ll = 0;
#pragma omp simd reduction(+ : xl, ll)
    for (int i = 0; i < n; ++i) {
      const float level = nearest_level<Q>(x[i] * inverse);
      xl += weights[i] * x[i] * level;
      ll += weights[i] * level * level;
    }
    // The least-squares scale for these levels reduces the error by xl^2 / ll.
    if (ll > 0 && xl * xl > best_gain * ll) {
      best_gain = xl * xl / ll;
      best_scale = xl / ll;
    }
  };
  constexpr int kLast = (1 << Q::kBits) - 1;
  constexpr float kStep = static_cast<float>(Q::level(kLast) - Q::level(0)) / kLast * 0.1f;
  for (const int code : {0, kLast}) {
    for (int k = -9; k <= 9; ++k)
      try_inverse((static_cast<float>(Q::level(code)) + kStep * static_cast<float>(k)) / max);
  }
  for (int round = 0; round < 2 && best_scale != 0; ++round) try_inverse(1.0f / best_scale);
  return best_scale;
}

struct AffineFit {
  float scale = 0;
  float offset = 0;
};

// Fits x[i] ~ scale * code + offset with codes 0..max_code and scale >= 0. at_most_zero: the offset
// is never positive.
inline AffineFit fit_affine(const float* x, const float* weights, int n, int max_code,
                            bool at_most_zero) {
  float low = x[0];
  float high = x[0];
  double sum_w = 0;
  double sum_x = 0;
  double sum_xx = 0;
  for (int i = 0; i < n; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
    sum_xx += weights[i] * x[i] * x[i];
  }
  if (at_most_zero) low = std::min(low, 0.0f);
  if (!(high > low)) return {0, low};
  const auto top = static_cast<float>(max_code);
  AffineFit best = {(high - low) / top, low};
  double best_error = HUGE_VAL;
  const auto try_codes = [&](float inverse, float offset) {
    float sum_q = 0;
    float sum_qq = 0;
    float sum_xq = 0;
#pragma omp simd reduction(+ : sum_q, sum_qq, sum_xq)
    for (int i = 0; i < n; ++i) {
      const float q = round_clamped((x[i] - offset) * inverse, 0, top);
      sum_q += weights[i] * q;
      sum_qq += weights[i] * q * q;
      sum_xq += weights[i] * q * x[i];
    }
    const double determinant = sum_w * sum_qq - double{sum_q} * sum_q;
    if (!(determinant > 0)) return;
    double s = (sum_w * sum_xq - sum_x * sum_q) / determinant;
    double o = (sum_qq * sum_x - double{sum_q} * sum_xq) / determinant;
    if (at_most_zero && o > 0) {
      o = 0;
      s = sum_xq / sum_qq;
    }
    const double error = sum_xx + s * s * sum_qq + o * o * sum_w + 2 * s * o * sum_q -
                         2 * s * sum_xq - 2 * o * sum_x;
    if (s > 0 && error < best_error) {
      best_error = error;
      best = {static_cast<float>(s), static_cast<float>(o)};
    }
  };
  for (int k = -10; k <= 10; ++k)
    try_codes((top + 0.1f * static_cast<float>(k)) / (high - low), low);
  for (int round = 0; round < 2; ++round) try_codes(1.0f / best.scale, best.offset);
  return best;
}

}  // namespace penstock::quant
