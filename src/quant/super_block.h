// Encoding of 256 elements whose groups have integer sub-scales: fits each group, rounds the scales
// of groups to integers times a common scale, then tries neighbouring integers and refits the
// common scale.
#pragma once
#include "quant/fit.h"

namespace penstock::quant {

inline constexpr int kSuperSize = 256;

// A block with symmetric codes: value = scale * sub_scales[group] * level(code).
template <class Q>
struct SymmetricSuper {
  Half scale;
  int8_t sub_scales[kGroups<Q>];
  uint8_t codes[kSuperSize];
};

// A block with offsets: value = scale * sub_scales[group] * code - min * sub_mins[group].
template <class Q>
struct AffineSuper {
  Half scale;
  Half min;
  uint8_t sub_scales[kGroups<Q>];
  uint8_t sub_mins[kGroups<Q>];
  uint8_t codes[kSuperSize];
};

template <class Q>
float symmetric_error(const float* x, const float* weights, float scale) {
  const float inverse = reciprocal(scale);
  float error = 0;
#pragma omp simd reduction(+ : error)
  for (int i = 0; i < Q::kGroupSize; ++i) {
    const float difference = x[i] - scale * nearest_level<Q>(x[i] * inverse);
    error += weights[i] * difference * difference;
  }
  return error;
}

// Returns the common scale whose multiples are nearest to the scales of the groups, weighted by
// the curvature of each group's error. Sub-scales are in [low, high]; low has the larger
// magnitude.
template <class Q>
float common_scale(const float* x, const float* weights, const float* group_scales, int low,
                   int high) {
  float slopes[kGroups<Q>];  // per group: sum of w l^2
  for (int g = 0; g < kGroups<Q>; ++g) {
    const float inverse = reciprocal(group_scales[g]);
    slopes[g] = 0;
    for (int i = g * Q::kGroupSize; i < (g + 1) * Q::kGroupSize; ++i) {
      const float level = nearest_level<Q>(x[i] * inverse);
      slopes[g] += weights[i] * level * level;
    }
  }
  const float most = signed_max(group_scales, kGroups<Q>);
  float best = 0, least = HUGE_VALF;
  for (int k = -20; k <= 20; ++k) {
    const float scale = most / (static_cast<float>(low) * (1.0f + 0.01f * static_cast<float>(k)));
    const float inverse = reciprocal(scale);
    float error = 0;
    for (int g = 0; g < kGroups<Q>; ++g) {
      const float sub = round_clamped(group_scales[g] * inverse, static_cast<float>(low),
                                      static_cast<float>(high));
      const float difference = group_scales[g] - scale * sub;
      error += slopes[g] * difference * difference;
    }
    if (error < least) least = error, best = scale;
  }
  return best;
}

// Chooses the sub-scales in [low, high] for a common scale; returns the error.
template <class Q>
float choose_sub_scales(const float* x, const float* weights, const float* group_scales, int low,
                        int high, SymmetricSuper<Q>& out) {
  const float scale = to_float(out.scale);
  const float inverse = reciprocal(scale);
  float total = 0;
  for (int g = 0; g < kGroups<Q>; ++g) {
    const int at = g * Q::kGroupSize;
    const int nearest = static_cast<int>(round_clamped(
        group_scales[g] * inverse, static_cast<float>(low), static_cast<float>(high)));
    float best = HUGE_VALF;
    for (int sub = std::max(low, nearest - 1); sub <= std::min(high, nearest + 1); ++sub) {
      const float error = symmetric_error<Q>(x + at, weights + at, scale * static_cast<float>(sub));
      if (error < best) {
        best = error;
        out.sub_scales[g] = static_cast<int8_t>(sub);
      }
    }
    total += best;
  }
  return total;
}

template <class Q>
void round_codes(const float* x, SymmetricSuper<Q>& out) {
  const float scale = to_float(out.scale);
  for (int i = 0; i < kSuperSize; ++i) {
    const float inverse = reciprocal(scale * static_cast<float>(out.sub_scales[i / Q::kGroupSize]));
    out.codes[i] = nearest_code<Q>(x[i] * inverse);
  }
}

// Encodes with sub-scales that are signed integers from low (the larger magnitude) to high.
template <class Q>
SymmetricSuper<Q> encode_symmetric_super(const float* x, const float* importance, int low,
                                         int high) {
  float weights[kSuperSize];
  error_weights(x, importance, kSuperSize, weights);
  float group_scales[kGroups<Q>];
  for (int g = 0; g < kGroups<Q>; ++g) {
    group_scales[g] =
        fit_scale<Q>(x + g * Q::kGroupSize, weights + g * Q::kGroupSize, Q::kGroupSize);
  }
  SymmetricSuper<Q> best = {};
  best.scale = to_half(common_scale<Q>(x, weights, group_scales, low, high));
  float best_error = choose_sub_scales(x, weights, group_scales, low, high, best);
  round_codes(x, best);
  for (int round = 0; round < 2; ++round) {
    // Least-squares common scale for fixed integers.
    float xl = 0;
    float ll = 0;
    for (int i = 0; i < kSuperSize; ++i) {
      const auto level =
          static_cast<float>(best.sub_scales[i / Q::kGroupSize] * Q::level(best.codes[i]));
      xl += weights[i] * x[i] * level;
      ll += weights[i] * level * level;
    }
    if (!(ll > 0)) break;
    SymmetricSuper<Q> next = best;
    next.scale = to_half(xl / ll);
    const float error = choose_sub_scales(x, weights, group_scales, low, high, next);
    if (!(error < best_error)) break;
    best_error = error;
    best = next;
    round_codes(x, best);
  }
  return best;
}

template <class Q>
float affine_error(const float* x, const float* weights, float scale, float offset) {
  constexpr float kTop = (1 << Q::kBits) - 1;
  const float inverse = reciprocal(scale);
  float error = 0;
#pragma omp simd reduction(+ : error)
  for (int i = 0; i < Q::kGroupSize; ++i) {
    const float difference =
        x[i] - offset - scale * round_clamped((x[i] - offset) * inverse, 0, kTop);
    error += weights[i] * difference * difference;
  }
  return error;
}

template <class Q>
float choose_sub_scales(const float* x, const float* weights, const AffineFit* fits, int top,
                        AffineSuper<Q>& out) {
  const float scale = to_float(out.scale);
  const float min = to_float(out.min);
  const auto nearest = [top](float value) {
    return static_cast<int>(round_clamped(value, 0, static_cast<float>(top)));
  };
  float total = 0;
  for (int g = 0; g < kGroups<Q>; ++g) {
    const int at = g * Q::kGroupSize;
    const int sub_scale = nearest(fits[g].scale * reciprocal(scale));
    const int sub_min = nearest(-fits[g].offset * reciprocal(min));
    float best = HUGE_VALF;
    for (int s = std::max(0, sub_scale - 1); s <= std::min(top, sub_scale + 1); ++s) {
      for (int m = std::max(0, sub_min - 1); m <= std::min(top, sub_min + 1); ++m) {
        const float error = affine_error<Q>(x + at, weights + at, scale * static_cast<float>(s),
                                            -(min * static_cast<float>(m)));
        if (error < best) {
          best = error;
          out.sub_scales[g] = static_cast<uint8_t>(s);
          out.sub_mins[g] = static_cast<uint8_t>(m);
        }
      }
    }
    total += best;
  }
  return total;
}

template <class Q>
void round_codes(const float* x, AffineSuper<Q>& out) {
  for (int i = 0; i < kSuperSize; ++i) {
    const int g = i / Q::kGroupSize;
    const float inverse = reciprocal(to_float(out.scale) * static_cast<float>(out.sub_scales[g]));
    out.codes[i] =
        nearest_code<Q>((x[i] + to_float(out.min) * static_cast<float>(out.sub_mins[g])) * inverse);
  }
}

// Refits the common scale and min by least squares for fixed integers; false if
// underdetermined.
template <class Q>
bool refit(const float* x, const float* weights, AffineSuper<Q>& out) {
  double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
  for (int i = 0; i < kSuperSize; ++i) {
    const int g = i / Q::kGroupSize;
    const double a = out.sub_scales[g] * out.codes[i];
    const double b = -out.sub_mins[g];
    aa += weights[i] * a * a;
    ab += weights[i] * a * b;
    bb += weights[i] * b * b;
    xa += weights[i] * x[i] * a;
    xb += weights[i] * x[i] * b;
  }
  const double determinant = aa * bb - ab * ab;
  if (!(determinant > 1e-9 * aa * bb)) return false;
  const double scale = (xa * bb - xb * ab) / determinant;
  const double min = (xb * aa - xa * ab) / determinant;
  if (!(scale > 0) || !(min >= 0)) return false;
  out.scale = to_half(static_cast<float>(scale));
  out.min = to_half(static_cast<float>(min));
  return true;
}

// Encodes with sub-scales and sub-mins that are integers from 0 to top.
template <class Q>
AffineSuper<Q> encode_affine_super(const float* x, const float* importance, int top) {
  float weights[kSuperSize];
  error_weights(x, importance, kSuperSize, weights);
  AffineFit fits[kGroups<Q>];
  float max_scale = 0;
  float max_min = 0;
  for (int g = 0; g < kGroups<Q>; ++g) {
    const int at = g * Q::kGroupSize;
    fits[g] = fit_affine(x + at, weights + at, Q::kGroupSize, (1 << Q::kBits) - 1, true);
    max_scale = std::max(max_scale, fits[g].scale);
    max_min = std::max(max_min, -fits[g].offset);
  }
  AffineSuper<Q> best = {};
  best.scale = to_half(max_scale / static_cast<float>(top));
  best.min = to_half(max_min / static_cast<float>(top));
  float best_error = choose_sub_scales(x, weights, fits, top, best);
  round_codes(x, best);
  for (int round = 0; round < 2; ++round) {
    AffineSuper<Q> next = best;
    if (!refit(x, weights, next)) break;
    const float error = choose_sub_scales(x, weights, fits, top, next);
    if (!(error < best_error)) break;
    best_error = error;
    best = next;
    round_codes(x, best);
  }
  return best;
}

}  // namespace penstock::quant
