// Encoders of IQ1, IQ2 and IQ3: for each group the points, signs and scale of least weighted
// squared error; then sub-scales and the block's scale; then the points again, for the scales as
// they are stored.
#include <cstring>

#include "quant/fit.h"
#include "quant/grids.h"

namespace penstock::quant {

namespace {

template <class Q>
constexpr bool kIsIQ1 = !Q::kHasSigns;
template <class Q>
constexpr int kLevels = Q::kColumns == 8 ? 3 : 8;
// Number of patterns of levels of half a point's columns.
template <class Q>
constexpr int kPatterns = Q::kColumns == 8 ? 81 : 64;
// Number of points of the grid; for IQ1 without the lowered ones.
template <class Q>
constexpr int kPoints = kIsIQ1<Q> ? 2048 : 1 << Q::kIndexBits;
// Whether the number of negative weights of each eight must be even.
template <class Q>
constexpr bool kEvenSigns =
    std::same_as<Q, IQ2_XXS> || std::same_as<Q, IQ2_XS> || std::same_as<Q, IQ3_XXS>;
// Largest n of a sub-scale 2n + 1.
template <class Q>
constexpr float kTopSubScale = kIsIQ1<Q> ? 7 : 15;

template <class Q>
int level_number(uint32_t point, int column) {
  return static_cast<int>(Q::kColumns == 8 ? point >> (8 * (column % 4) + column / 4 * 4) & 3
                                           : point >> (8 * column) & 7);
}

// Four scales are tried at once, one per lane.
using Four [[gnu::vector_size(16)]] = float;
using FourInts [[gnu::vector_size(16)]] = int32_t;

Four splat(float x) { return Four{x, x, x, x}; }
bool any(FourInts mask) {
  const auto halves = std::bit_cast<std::array<uint64_t, 2>>(mask);
  return (halves[0] | halves[1]) != 0;
}
Four smaller(Four a, Four b) { return a < b ? a : b; }

// Cost of each level of each column of a point.
template <class Q>
using Costs = Four[Q::kColumns][kLevels<Q>];

// Finds the point of a grid with the least cost. Points are sorted by the pattern of their first
// half; costs of both halves are tables of kPatterns sums, and most first halves are too expensive
// for any second half.
template <class Q>
class PointFinder {
 public:
  PointFinder() {
    int n = 0;
    for (int pattern = 0; pattern < kPatterns<Q>; ++pattern) {
      first_[pattern] = static_cast<uint16_t>(n);
      for (int i = 0; i < kPoints<Q>; ++i) {
        if (half_pattern(Q::kGrid.points[i], 0) != pattern) continue;
        second_[n] = static_cast<uint8_t>(half_pattern(Q::kGrid.points[i], kHalf));
        point_[n++] = static_cast<uint16_t>(i);
      }
    }
    first_[kPatterns<Q>] = static_cast<uint16_t>(n);
  }

  // Returns the least costs; sets the points.
  Four find(const Costs<Q>& costs, uint16_t (&points)[4]) const {
    Four first[kPatterns<Q>], second[kPatterns<Q>];
    sum_half(costs, first);
    sum_half(costs + kHalf, second);
    Four least_second = second[0], least_first = first[0];
    for (int p = 1; p < kPatterns<Q>; ++p) {
      least_second = smaller(least_second, second[p]);
      least_first = smaller(least_first, first[p]);
    }
    Four cost = splat(HUGE_VALF);
    FourInts best = {};
    const auto look_at = [&](int pattern) {
      for (int i = first_[pattern]; i < first_[pattern + 1]; ++i) {
        const Four sum = first[pattern] + second[second_[i]];
        const FourInts better = sum < cost;
        cost = better ? sum : cost;
        best = better ? FourInts{i, i, i, i} : best;
      }
    };
    for (int p = 0; p < kPatterns<Q>; ++p) {
      // likely minima first: they exclude most of the others
      if (any(first[p] <= least_first)) look_at(p);
    }
    for (int p = 0; p < kPatterns<Q>; ++p) {
      if (any(first[p] + least_second < cost)) look_at(p);
    }
    for (int lane = 0; lane < 4; ++lane) points[lane] = point_[best[lane]];
    return cost;
  }

 private:
  static constexpr int kHalf = Q::kColumns / 2;

  static int half_pattern(uint32_t point, int column) {
    int pattern = 0;
    for (int i = kHalf - 1; i >= 0; --i)
      pattern = pattern * kLevels<Q> + level_number<Q>(point, column + i);
    return pattern;
  }
  static void sum_half(const Four (*costs)[kLevels<Q>], Four* sums) {
    int n = 1;
    sums[0] = Four{};
    for (int column = 0; column < kHalf; ++column, n *= kLevels<Q>) {
      for (int level = kLevels<Q> - 1; level >= 0; --level) {
        for (int i = 0; i < n; ++i) sums[level * n + i] = sums[i] + costs[column][level];
      }
    }
  }

  uint16_t first_[kPatterns<Q> + 1], point_[kPoints<Q>];
  uint8_t second_[kPoints<Q>];
};

template <class Q>
const PointFinder<Q>& finder() {
  static const PointFinder<Q> finder;
  return finder;
}

// Points and signs of a group.
template <class Q>
struct GroupCodes {
  uint16_t points[Q::kGroupSize / Q::kColumns];
  uint8_t signs[Q::kGroupSize / 8];
};
// Codes of a group for four scales.
template <class Q>
using FourCodes = std::array<GroupCodes<Q>, 4>;

template <class Q>
Four find_point(const float* x, const float* weights, Four scales, int first_code,
                uint16_t (&points)[4]) {
  Costs<Q> costs;
  for (int i = 0; i < Q::kColumns; ++i) {
    for (int level = 0; level < kLevels<Q>; ++level) {
      const Four difference =
          splat(x[i]) - scales * splat(static_cast<float>(Q::level(first_code + level)));
      costs[i][level] = splat(weights[i]) * difference * difference;
    }
  }
  return finder<Q>().find(costs, points);
}

// Splits eight weights into magnitudes and signs. If the number of negative ones must be even and
// is odd, the sign with the least cost is flipped, and its magnitude is negated.
template <class Q>
uint8_t split_signs(const float* x, const float* weights, float* magnitudes) {
  unsigned signs = 0;
  for (int i = 0; i < 8; ++i) {
    magnitudes[i] = std::fabs(x[i]);
    signs |= (x[i] < 0 ? 1u : 0u) << i;
  }
  if (kEvenSigns<Q> && std::popcount(signs) % 2 != 0) {
    int wrong = 0;
    for (int i = 1; i < 8; ++i) {
      if (weights[i] * magnitudes[i] < weights[wrong] * magnitudes[wrong]) wrong = i;
    }
    magnitudes[wrong] = -magnitudes[wrong];
    signs ^= 1u << wrong;
  }
  return static_cast<uint8_t>(signs);
}

// Chooses the codes of a group with signs; returns their errors.
template <class Q>
Four fit_codes(const float* x, const float* weights, Four scales, FourCodes<Q>& codes) {
  Four errors = {};
  for (int e = 0; e < Q::kGroupSize; e += 8) {
    float magnitudes[8];
    const uint8_t signs = split_signs<Q>(x + e, weights + e, magnitudes);
    for (GroupCodes<Q>& lane : codes) lane.signs[e / 8] = signs;
    for (int i = 0; i < 8; i += Q::kColumns) {
      uint16_t points[4];
      errors += find_point<Q>(magnitudes + i, weights + e + i, scales, 0, points);
      for (size_t lane = 0; lane < 4; ++lane)
        codes[lane].points[(e + i) / Q::kColumns] = points[lane];
    }
  }
  return errors;
}

// Chooses the codes of a group of IQ1. In IQ1_S, all points of a group are raised or all are
// lowered; in IQ1_M each point by itself.
template <class Q>
  requires kIsIQ1<Q>
Four fit_codes(const float* x, const float* weights, Four scales, FourCodes<Q>& codes) {
  FourCodes<Q> lowered;
  Four errors = {}, lowered_errors = {};
  for (int e = 0; e < Q::kGroupSize / 8; ++e) {
    uint16_t points[2][4];
    Four up = find_point<Q>(x + 8 * e, weights + 8 * e, scales, 0, points[0]);
    const Four down = find_point<Q>(x + 8 * e, weights + 8 * e, scales, 4, points[1]);
    for (size_t lane = 0; lane < 4; ++lane) {
      lowered[lane].points[e] = points[1][lane] + 2048;
      const bool each = std::same_as<Q, IQ1_M> && down[lane] < up[lane];
      codes[lane].points[e] = each ? lowered[lane].points[e] : points[0][lane];
    }
    errors += std::same_as<Q, IQ1_M> ? smaller(up, down) : up;
    lowered_errors += down;
  }
  for (size_t lane = 0; lane < 4; ++lane) {
    if (lowered_errors[lane] < errors[lane]) codes[lane] = lowered[lane];
  }
  return smaller(errors, lowered_errors);
}

// Returns the level of element i of a group.
template <class Q>
int level_of(const GroupCodes<Q>& codes, int i) {
  const uint32_t point = Q::kGrid.points[codes.points[i / Q::kColumns]];
  const int level = Q::level(
      static_cast<int>(point >> (8 * (i % 4) + (Q::kColumns == 8 ? i % 8 / 4 * 4 : 0)) & 15));
  return Q::kHasSigns && (codes.signs[i / 8] >> (i % 8) & 1) != 0 ? -level : level;
}

// Sums over weights w, values x and levels l: xl = sum of w x l, ll = sum of w l l.
struct Moments {
  float xl = 0, ll = 0;
};
template <class Q>
Moments moments(const float* x, const float* weights, const GroupCodes<Q>& codes) {
  Moments m;
  for (int i = 0; i < Q::kGroupSize; ++i) {
    const auto level = static_cast<float>(level_of<Q>(codes, i));
    m.xl += weights[i] * x[i] * level;
    m.ll += weights[i] * level * level;
  }
  return m;
}

// The best scale of a group alone, and the curvature of its error at that scale.
struct GroupFit {
  float scale = 0, weight = 0;
};

template <class Q>
GroupFit fit_group(const float* x, const float* weights) {
  const float max = std::fabs(signed_max(x, Q::kGroupSize));
  GroupFit best;
  if (!(max > 0) || !std::isfinite(max)) return best;
  float least = HUGE_VALF;
  const auto try_scales = [&](Four scales) {
    FourCodes<Q> codes;
    const Four errors = fit_codes<Q>(x, weights, scales, codes);
    for (size_t lane = 0; lane < 4; ++lane) {
      const Moments m = moments<Q>(x, weights, codes[lane]);
      if (!(m.ll > 0 && m.xl > 0)) continue;
      // Error with the least-squares scale for these codes.
      const float off = m.xl - scales[lane] * m.ll;
      const float error = errors[lane] - off * off / m.ll;
      if (!(error < least)) continue;
      least = error;
      best = {m.xl / m.ll, m.ll};
    }
  };
  // Tries to map the largest magnitude to the highest level, beyond it, and to lower ones.
  constexpr int kTop = kIsIQ1<Q> ? 9 : Q::level(kLevels<Q> - 1);
  constexpr float kLow = kIsIQ1<Q> ? 0.35f : 0.5f, kHigh = kIsIQ1<Q> ? 1.0f : 1.2f,
                  kStep = (kHigh - kLow) / 7;
  for (int k = 0; k < 8; k += 4) {
    const Four steps = splat(static_cast<float>(k)) + Four{0, 1, 2, 3};
    try_scales(splat(max / static_cast<float>(kTop)) * (splat(kLow) + splat(kStep) * steps));
  }
  try_scales(splat(best.scale) * Four{0.96f, 0.985f, 1.0f, 1.03f});
  return best;
}

// value = scale * sub_scales[g] * kUnit * level
template <class Q>
struct GridBlock {
  Half scale{0};
  uint8_t sub_scales[kGroups<Q>] = {};  // n of the odd number 2n + 1
  GroupCodes<Q> codes[kGroups<Q>] = {};
};

// Returns n of the odd number 2n + 1 that is nearest to value.
template <class Q>
float nearest_odd(float value) {
  return round_clamped((value - 1) * 0.5f, 0, kTopSubScale<Q>);
}

// Returns the block's scale whose odd multiples are nearest to the scales of the groups.
template <class Q>
float common_scale(const GroupFit* fits) {
  float max = 0;
  for (int g = 0; g < kGroups<Q>; ++g) max = std::max(max, fits[g].scale);
  constexpr float kMostTimes = 2 * kTopSubScale<Q> + 1;
  float best = 0, least = HUGE_VALF;
  for (int k = 0; k <= 60; ++k) {
    const float scale = max / (kMostTimes * (1.1f - 0.01f * static_cast<float>(k)));
    float error = 0;
    for (int g = 0; g < kGroups<Q>; ++g) {
      const float odd = 2 * nearest_odd<Q>(fits[g].scale / scale) + 1;
      const float difference = fits[g].scale - scale * odd;
      error += fits[g].weight * difference * difference;
    }
    if (error < least) least = error, best = scale;
  }
  return best;
}

// Chooses sub-scales and codes for the block's scale; returns the error.
template <class Q>
float fit_block(const float* x, const float* weights, const GroupFit* fits, GridBlock<Q>& out) {
  const float unit = to_float(out.scale) * kUnit<Q>;
  float total = 0;
  for (int g = 0; g < kGroups<Q>; ++g) {
    const int at = g * Q::kGroupSize;
    const float nearest = nearest_odd<Q>(fits[g].scale * reciprocal(unit));
    Four subs = splat(nearest) + Four{0, -1, 1, 2};
    subs = subs < splat(0) ? splat(0) : subs;
    subs = smaller(subs, splat(kTopSubScale<Q>));
    FourCodes<Q> codes;
    const Four errors =
        fit_codes<Q>(x + at, weights + at, splat(unit) * (subs + subs + splat(1)), codes);
    size_t best = 0;
    for (size_t lane = 1; lane < 4; ++lane) {
      if (errors[lane] < errors[best]) best = lane;
    }
    out.sub_scales[g] = static_cast<uint8_t>(subs[best]);
    out.codes[g] = codes[best];
    total += errors[best];
  }
  return total;
}

// Returns the least-squares scale of the block for given codes and sub-scales; 0 if
// undetermined.
template <class Q>
float refit_scale(const float* x, const float* weights, const GridBlock<Q>& block) {
  float xl = 0, ll = 0;
  for (int g = 0; g < kGroups<Q>; ++g) {
    const int at = g * Q::kGroupSize;
    const Moments m = moments<Q>(x + at, weights + at, block.codes[g]);
    const auto sub = static_cast<float>(2 * block.sub_scales[g] + 1);
    xl += m.xl * sub;
    ll += m.ll * sub * sub;
  }
  return ll > 0 && xl > 0 ? xl / (ll * kUnit<Q>) : 0;
}

template <class Q>
GridBlock<Q> encode_grid(const float* x, const float* importance) {
  float weights[Q::kBlockSize];
  error_weights(x, importance, Q::kBlockSize, weights);
  GroupFit fits[kGroups<Q>];
  for (int g = 0; g < kGroups<Q>; ++g) {
    fits[g] = fit_group<Q>(x + g * Q::kGroupSize, weights + g * Q::kGroupSize);
  }
  GridBlock<Q> best;
  best.scale = to_half(common_scale<Q>(fits) / kUnit<Q>);
  if (!(to_float(best.scale) > 0)) return best;
  float least = fit_block(x, weights, fits, best);
  for (int round = 0; round < 2; ++round) {
    GridBlock<Q> next = best;
    next.scale = to_half(refit_scale(x, weights, best));
    if (!(to_float(next.scale) > 0) || next.scale.bits == best.scale.bits) break;
    const float error = fit_block(x, weights, fits, next);
    if (!(error < least)) break;
    least = error;
    best = next;
  }
  return best;
}

}  // namespace

void IQ1_S::encode(const float* in, const float* importance, Block& block) {
  const auto encoded = encode_grid<IQ1_S>(in, importance);
  block.scale = encoded.scale;
  for (int g = 0; g < 8; ++g) {
    uint32_t high = static_cast<uint32_t>(encoded.sub_scales[g]) << 12;
    for (int i = 0; i < 4; ++i) {
      const uint32_t point = encoded.codes[g].points[i];
      block.low[4 * g + i] = static_cast<uint8_t>(point);
      high |= (point >> 8 & 7) << (3 * i) | point >> 11 << 15;
    }
    block.high[g] = static_cast<uint16_t>(high);
  }
}

void IQ1_M::encode(const float* in, const float* importance, Block& block) {
  const auto encoded = encode_grid<IQ1_M>(in, importance);
  for (int i = 0; i < 32; ++i) {
    const int point = encoded.codes[i / 2].points[i % 2];
    block.low[i] = static_cast<uint8_t>(point);
    block.high[i / 2] |= static_cast<uint8_t>(point >> 8 << (i % 2 * 4));
  }
  for (int k = 0; k < 4; ++k) {
    uint32_t word = static_cast<uint32_t>(encoded.scale.bits >> (4 * k) & 15) << 12;
    for (int j = 0; j < 4; ++j)
      word |= static_cast<uint32_t>(encoded.sub_scales[4 * k + j]) << (3 * j);
    block.scales[k] = static_cast<uint16_t>(word);
  }
}

namespace {

// Packs four times seven signs, and a sub-scale in the top four bits.
uint32_t signs_and_scale(const uint8_t* signs, uint8_t sub_scale) {
  uint32_t word = static_cast<uint32_t>(sub_scale) << 28;
  for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(signs[i] & 127) << (7 * i);
  return word;
}

void pack_sub_scales(const uint8_t* sub_scales, int n, uint8_t* out) {
  for (int g = 0; g < n; g += 2)
    out[g / 2] = static_cast<uint8_t>(sub_scales[g] | sub_scales[g + 1] << 4);
}

}  // namespace

void IQ2_XXS::encode(const float* in, const float* importance, Block& block) {
  const auto encoded = encode_grid<IQ2_XXS>(in, importance);
  block.scale = encoded.scale;
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 4; ++i)
      block.groups[g].points[i] = static_cast<uint8_t>(encoded.codes[g].points[i]);
    const uint32_t word = signs_and_scale(encoded.codes[g].signs, encoded.sub_scales[g]);
    block.groups[g].rest[0] = static_cast<uint16_t>(word);
    block.groups[g].rest[1] = static_cast<uint16_t>(word >> 16);
  }
}

void IQ2_XS::encode(const float* in, const float* importance, Block& block) {
  const auto encoded = encode_grid<IQ2_XS>(in, importance);
  block.scale = encoded.scale;
  pack_sub_scales(encoded.sub_scales, 16, block.scales);
  for (int i = 0; i < 32; ++i) {
    const auto& codes = encoded.codes[i / 2];
    block.points[i] = static_cast<uint16_t>(codes.points[i % 2] | (codes.signs[i % 2] & 127) << 9);
  }
}

void IQ2_S::encode(const float* in, const float* importance, Block& block) {
  const auto encoded = encode_grid<IQ2_S>(in, importance);
  block.scale = encoded.scale;
  pack_sub_scales(encoded.sub_scales, 16, block.scales);
  for (int i = 0; i < 32; ++i) {
    const auto& codes = encoded.codes[i / 2];
    block.low[i] = static_cast<uint8_t>(codes.points[i % 2]);
    block.high[i / 4] |= static_cast<uint8_t>(codes.points[i % 2] >> 8 << (i % 4 * 2));
    block.signs[i] = codes.signs[i % 2];
  }
}

void IQ3_XXS::encode(const float* in, const float* importance, Block& block) {
  const auto encoded = encode_grid<IQ3_XXS>(in, importance);
  block.scale = encoded.scale;
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 8; ++i)
      block.points[8 * g + i] = static_cast<uint8_t>(encoded.codes[g].points[i]);
    const uint32_t word = signs_and_scale(encoded.codes[g].signs, encoded.sub_scales[g]);
    block.rest[g][0] = static_cast<uint16_t>(word);
    block.rest[g][1] = static_cast<uint16_t>(word >> 16);
  }
}

void IQ3_S::encode(const float* in, const float* importance, Block& block) {
  const auto encoded = encode_grid<IQ3_S>(in, importance);
  block.scale = encoded.scale;
  pack_sub_scales(encoded.sub_scales, 8, block.scales);
  for (int i = 0; i < 64; ++i) {
    const int point = encoded.codes[i / 8].points[i % 8];
    block.low[i] = static_cast<uint8_t>(point);
    block.high[i / 8] |= static_cast<uint8_t>(point >> 8 << (i % 8));
  }
  for (int g = 0; g < 8; ++g) std::memcpy(block.signs + 4 * g, encoded.codes[g].signs, 4);
}

}  // namespace penstock::quant
