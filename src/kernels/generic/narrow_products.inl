// Products with K and V of 4-bit codes (KvFormat::kI4) as they lie in a unit, for attention.inl.
// Included after an instruction set's simd.h and simd_math.inl.
//
// A key's code times its factor is a whole number of 8 bits. In floats, sums of codes are multiplied
// by the factors once for each group of 32 features; in whole numbers the codes are, in registers,
// and the products are those of kI8, to the bit. The factors of values are multiplied with the weights
// of their tokens, once for each group of features: codes of values need none.
#pragma once
#include "kernels/generic/attention_chunks.inl"

namespace penstock {
namespace {

inline const std::byte* key_factors(const KvUnitLayout& layout, const std::byte* unit, int group) {
  return unit + layout.k_factors + group * kUnitTokens;
}

// acc[row][unit] += products of the codes at bits Bit and Bit + 8 of each word of the eight features
// from d on, which belong to neighbouring features. q: of these.
template <int NR, int NU, int Bit>
[[gnu::always_inline]] inline void add_code_scores(const Chunk& chunk, int u, int d, const float* q,
                                                   F (&acc)[NR][NU]) {
  F a[NU], b[NU];
  for (int j = 0; j < NU; ++j) Simd::load_i4_pairs(chunk.units[u + j] + d * 8, Bit, a[j], b[j]);
  for (int i = 0; i < NR; ++i) {
    const F q0 = Simd::set1(q[i]), q1 = Simd::set1(q[NR + i]);
    for (int j = 0; j < NU; ++j) acc[i][j] = Simd::fma(a[j], q0, acc[i][j]);
    for (int j = 0; j < NU; ++j) acc[i][j] = Simd::fma(b[j], q1, acc[i][j]);
  }
}

// As score_units() of attention.inl.
template <int NR, int NU>
inline void score_narrow_units(const AttentionTile& tile, const Chunk& chunk, int r, int u,
                               const float* q, float* p) {
  const int dim = tile.layout->padded_dim;
  q += static_cast<int64_t>(r) * dim;
  for (int first = 0; first < dim; first += kFactorFeatures) {
    const int end = first + kFactorFeatures < dim ? first + kFactorFeatures : dim;
    F acc[NR][NU];
    for (int i = 0; i < NR; ++i) {
      for (int j = 0; j < NU; ++j) acc[i][j] = Simd::zero();
    }
    for (int d = first; d < end; d += 8, q += 8 * NR) {
      for (int j = 0; j < NU; ++j) Simd::prefetch(chunk.next[u + j] + d * 8);
      add_code_scores<NR, NU, 0>(chunk, u, d, q, acc);
      add_code_scores<NR, NU, 16>(chunk, u, d, q + 2 * NR, acc);
      add_code_scores<NR, NU, 4>(chunk, u, d, q + 4 * NR, acc);
      add_code_scores<NR, NU, 20>(chunk, u, d, q + 6 * NR, acc);
    }
    for (int j = 0; j < NU; ++j) {
      const F factors =
          Simd::load_u8(key_factors(*tile.layout, chunk.units[u + j], first / kFactorFeatures));
      for (int i = 0; i < NR; ++i) {
        float* to = p + (r + i) * kChunkTokens + (u + j) * kUnitTokens;
        const F sum = Simd::mul(acc[i][j], factors);
        Simd::store(to, first == 0 ? sum : Simd::add(sum, Simd::load(to)));
      }
    }
  }
}

template <int NR>
constexpr int kNarrowWide = NR == 2 ? 2 : kWholeWide<NR>;

// Whole sums of the products of NR rows' low and high bytes of queries with NU units.
template <class S, int NR, int NU>
struct WholeSums {
  typename S::Ints low[NR][NU], high[NR][NU];

  // Adds the products of four features of each token. q: of the rows, low bytes and high bytes.
  [[gnu::always_inline]] void add(const typename S::Ints (&k)[NU], const float* q) {
    typename S::Ints lifted[NU];
#pragma GCC unroll 8
    for (int j = 0; j < NU; ++j) lifted[j] = S::lifted(k[j]);
#pragma GCC unroll 8
    for (int i = 0; i < NR; ++i) {
      const typename S::Ints a = four_at<S>(q + i), b = four_at<S>(q + NR + i);
#pragma GCC unroll 8
      for (int j = 0; j < NU; ++j) low[i][j] = S::dot_bytes(low[i][j], a, k[j]);
#pragma GCC unroll 8
      for (int j = 0; j < NU; ++j) high[i][j] = S::dot_bytes(high[i][j], lifted[j], b);
    }
  }
};

// As whole_score_units() of attention.inl.
template <class S, int NR, int NU>
inline void whole_score_narrow_units(const AttentionTile& tile, const Chunk& chunk, int r, int u,
                                     const float* q, LinesAhead& lines, float* p) {
  using Ints = typename S::Ints;
  LinesAhead ahead = lines;
  const int dim = tile.layout->padded_dim;
  q += static_cast<int64_t>(r) * dim;
  const float* scales = q + dim / 2 * NR;
  WholeSums<S, NR, NU> sums;
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < NU; ++j) {
      sums.low[i][j] = S::zero_ints();
      sums.high[i][j] = four_at<S>(scales + NR + i);
    }
  }
  for (int first = 0; first < dim; first += kFactorFeatures) {
    const int end = first + kFactorFeatures < dim ? first + kFactorFeatures : dim;
    Ints factors[NU], bias[NU];
#pragma GCC unroll 8
    for (int j = 0; j < NU; ++j) {
      factors[j] =
          S::load_factors(key_factors(*tile.layout, chunk.units[u + j], first / kFactorFeatures));
      bias[j] = S::bias_of(factors[j]);
    }
    for (int d = first; d < end; d += 8, q += 4 * NR) {
      Ints k[NU], x[NU];
      ahead.fetch<kWholeLines<NU>>();
#pragma GCC unroll 8
      for (int j = 0; j < NU; ++j) {
        x[j] = S::load_ints(chunk.units[u + j] + d * 8);
        k[j] = S::template times_factors<false>(x[j], factors[j], bias[j]);
      }
      sums.add(k, q);
#pragma GCC unroll 8
      for (int j = 0; j < NU; ++j)
        k[j] = S::template times_factors<true>(x[j], factors[j], bias[j]);
      sums.add(k, q + 2 * NR);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
    const F scale = S::set1(scales[i]);
#pragma GCC unroll 8
    for (int j = 0; j < NU; ++j) {
      const F score = S::to_float(S::add_ints(sums.low[i][j], S::times_256(sums.high[i][j])));
      S::store(p + (r + i) * kChunkTokens + (u + j) * kUnitTokens, S::mul(score, scale));
    }
  }
  lines = ahead;
}

template <class S, int NR, int Wide>
inline void score_narrow_chunk(const AttentionTile& tile, const Chunk& chunk, int r, const float* q,
                               LinesAhead& lines, float* p) {
  int u = chunk.unit_begin;
  if constexpr (kWhole<S, KvFormat::kI4>) {
    if (tile.layout->padded_dim <= kMostWholeDim) {
      constexpr int kWide = kNarrowWide<NR>;
      for (; u + kWide <= chunk.unit_end; u += kWide)
        whole_score_narrow_units<S, NR, kWide>(tile, chunk, r, u, q, lines, p);
      for (; u < chunk.unit_end; ++u)
        whole_score_narrow_units<S, NR, 1>(tile, chunk, r, u, q, lines, p);
      return;
    }
  }
  for (; u + Wide <= chunk.unit_end; u += Wide)
    score_narrow_units<NR, Wide>(tile, chunk, r, u, q, p);
  for (; u < chunk.unit_end; ++u) score_narrow_units<NR, 1>(tile, chunk, r, u, q, p);
}

// Returns the largest weight of each row of a chunk.
template <int NR>
inline void largest_weights(const float* p, float (&largest)[NR]) {
  F most[NR];
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
    const float* row = p + i * kChunkTokens;
    most[i] = Simd::max(Simd::max(Simd::load(row), Simd::load(row + 16)),
                        Simd::max(Simd::load(row + 32), Simd::load(row + 48)));
  }
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) largest[i] = Simd::reduce_max(most[i]);
}

// Factors of a group of values for the tokens of a chunk; 0 where there is no unit.
struct ValueFactors {
  ValueFactors(const KvUnitLayout& layout, const Chunk& chunk, int group) {
#pragma GCC unroll 4
    for (int u = 0; u < kChunkUnits; ++u) {
      const bool is_there = u >= chunk.unit_begin && u < chunk.unit_end;
      of_unit[u] = is_there ? Simd::load_u8(chunk.units[u] + layout.v_factors + group * kUnitTokens)
                            : Simd::zero();
    }
  }
  // Returns a row's weights for unit u times them.
  [[gnu::always_inline]] F times(const float* row, int u) const {
    return Simd::mul(Simd::load(row + u * kUnitTokens), of_unit[u]);
  }
  F of_unit[kChunkUnits];
};

// acc[row][j] += weights of tokens t + Bit / 8 and the next one times their features.
template <int NR, int NJ, int Bit>
[[gnu::always_inline]] inline void add_code_values(const std::byte* v, const float* weight,
                                                   F (&acc)[NR][NJ]) {
  for (int j = 0; j < NJ; ++j) {
    F a, b;
    if (j == 0) Simd::load_i4_pairs(v, Bit, a, b);
    if (j == 1) Simd::load_i4_pairs(v, Bit + 4, a, b);
    for (int i = 0; i < NR; ++i)
      acc[i][j] = Simd::fma(a, Simd::set1(weight[i * kChunkTokens + Bit / 8]), acc[i][j]);
    for (int i = 0; i < NR; ++i)
      acc[i][j] = Simd::fma(b, Simd::set1(weight[i * kChunkTokens + Bit / 8 + 1]), acc[i][j]);
  }
}

// Of one group of values, 16 * NJ features from 16 * High on: out = out * factor + weights V. weights:
// of tokens times their factors.
template <int NR, int NJ, int High>
inline void add_group(const AttentionTile& tile, const Chunk& chunk, int group,
                      const float* weights, const float* factors, float* out) {
  const KvUnitLayout& layout = *tile.layout;
  const int dim = layout.padded_value_dim;
  const int64_t stride = int64_t{layout.value_groups()} * 64;
  out += group * kFactorFeatures + 16 * High;
  F acc[NR][NJ];
  for (int i = 0; i < NR; ++i) {
    for (int j = 0; j < NJ; ++j)
      acc[i][j] = Simd::mul(Simd::load(out + i * dim + 16 * j), Simd::set1(factors[i]));
  }
  for (int u = chunk.unit_begin; u < chunk.unit_end; ++u) {
    const std::byte* v = chunk.values[u] + group * 64;
    const std::byte* ahead = chunk.next[u] + layout.v_offset + group * 64;
    const float* weight = weights + u * kUnitTokens;
    for (int t = 0; t < kUnitTokens; t += 4, v += stride, ahead += stride) {
      if (High == 0) Simd::prefetch(ahead);
      add_code_values<NR, NJ, 4 * High>(v, weight + t, acc);
      add_code_values<NR, NJ, 4 * High + 16>(v, weight + t, acc);
    }
  }
  for (int i = 0; i < NR; ++i) {
    for (int j = 0; j < NJ; ++j) Simd::store(out + i * dim + 16 * j, acc[i][j]);
  }
}

// As add_group(), with whole products. weights: as low and high bytes (S::store_halves()); units:
// value of weight 1 of each row. Every: how many loads of values fetch a line, 0 = none.
template <class S, int NR, int NJ, int Every>
inline void add_whole_group(const AttentionTile& tile, const Chunk& chunk, int group,
                            const float* weights, const float* factors, const float* units,
                            LinesAhead& lines, float* out) {
  LinesAhead ahead = lines;
  const KvUnitLayout& layout = *tile.layout;
  const int dim = layout.padded_value_dim;
  const int64_t stride = int64_t{layout.value_groups()} * 64;
  out += group * kFactorFeatures;
  typename S::Ints low[NR][NJ], high[NR][NJ];
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < NJ; ++j) low[i][j] = high[i][j] = S::zero_ints();
  }
  for (int u = chunk.unit_begin; u < chunk.unit_end; ++u) {
    const std::byte* v = chunk.values[u] + group * 64;
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t, v += stride) {
      typename S::Ints x[2];
      if (Every > 0 && t % (Every > 0 ? Every : 1) == 0) ahead.fetch<1>();
      const typename S::Ints codes = S::load_ints(v);
      x[0] = S::template sixteenfold<false>(codes);
      if constexpr (NJ == 2) x[1] = S::template sixteenfold<true>(codes);
#pragma GCC unroll 8
      for (int i = 0; i < NR; ++i) {
        const float* four = weights + i * kChunkTokens + t * kChunkUnits + u;
        const typename S::Ints a = four_at<S>(four), b = four_at<S>(four + 4 * kChunkUnits);
#pragma GCC unroll 8
        for (int j = 0; j < NJ; ++j) low[i][j] = S::dot_bytes(low[i][j], a, x[j]);
#pragma GCC unroll 8
        for (int j = 0; j < NJ; ++j) high[i][j] = S::dot_bytes(high[i][j], b, x[j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
    const F factor = S::set1(factors[i]), unit = S::set1(units[i]);
#pragma GCC unroll 8
    for (int j = 0; j < NJ; ++j) {
      float* to = out + i * dim + 16 * j;
      const F sum = S::to_float(S::add_ints(low[i][j], S::times_256(high[i][j])));
      S::store(to, S::fma(sum, unit, S::mul(S::load(to), factor)));
    }
  }
  lines = ahead;
}

// Adds the values of a group of features to the sums of NR rows, at most four at a time: these use
// two vectors of features for each weight that is loaded.
template <class S, int NR>
inline void add_whole_group_rows(const AttentionTile& tile, const Chunk& chunk, int group,
                                 const float* weights, const float* factors, const float* units,
                                 LinesAhead& lines, float* out) {
  constexpr int kRows = NR < 4 ? NR : 4, kEvery = NR > 4 ? 1 : 2;
  const bool both = group * kFactorFeatures + 16 < tile.layout->padded_value_dim;
  const auto add = [&]<int Every>(int r) {
    float* to = out + r * tile.layout->padded_value_dim;
    const float* own = weights + r * kChunkTokens;
    if (both) {
      add_whole_group<S, kRows, 2, Every>(tile, chunk, group, own, factors + r, units + r, lines,
                                          to);
    } else {
      add_whole_group<S, kRows, 1, Every>(tile, chunk, group, own, factors + r, units + r, lines,
                                          to);
    }
  };
  add.template operator()<kEvery>(0);
  if constexpr (NR > kRows) add.template operator()<0>(kRows);
}

// Weights are rounded to words, and again when factors are multiplied: by at most one of 32,767 parts
// of the largest weight.
template <class S, int NR>
inline void add_whole_narrow_values(const AttentionTile& tile, const Chunk& chunk, const float* p,
                                    const float* factors, LinesAhead& lines, float* out) {
  // of factors in words, over 2^15: 15 of them are at most 1
  constexpr float kFactorUnit = 2184.0f, kOfCodes = 1.0f / 16.0f;
  const KvUnitLayout& layout = *tile.layout;
  alignas(64) float own[NR * kChunkTokens];
  typename S::Words words[NR];
  float units[NR];
  largest_weights<NR>(p, units);
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
    const F inverse = S::set1(units[i] > 1e-30f ? kMostHalf / units[i] : 0.0f);
    const float* row = p + i * kChunkTokens;
    const auto at = [&](int token) { return S::mul(S::load(row + token), inverse); };
    words[i] = S::to_words(at(0), at(16), at(32), at(48));
    units[i] *= 32768.0f / kFactorUnit * kOfCodes / kMostHalf;
  }
  const F factor_unit = S::set1(kFactorUnit);
  for (int g = 0; g < layout.value_groups(); ++g) {
    const ValueFactors f(layout, chunk, g);
    const auto of_unit = [&](int u) { return S::mul(f.of_unit[u], factor_unit); };
    const auto of_tokens = S::to_words(of_unit(0), of_unit(1), of_unit(2), of_unit(3));
#pragma GCC unroll 8
    for (int i = 0; i < NR; ++i)
      S::store_halves(own + i * kChunkTokens, S::times_words(words[i], of_tokens));
    add_whole_group_rows<S, NR>(tile, chunk, g, own, factors, units, lines, out);
  }
}

template <int NR, int Wide>
inline void add_float_narrow_values(const AttentionTile& tile, const Chunk& chunk, const float* p,
                                    const float* factors, float* out) {
  const KvUnitLayout& layout = *tile.layout;
  alignas(64) float own[NR * kChunkTokens];
  for (int g = 0; g < layout.value_groups(); ++g) {
    const ValueFactors of_tokens(layout, chunk, g);
    for (int i = 0; i < NR; ++i) {
      float* row = own + i * kChunkTokens;
      for (int u = 0; u < kChunkUnits; ++u)
        Simd::store(row + u * kUnitTokens, of_tokens.times(p + i * kChunkTokens, u));
    }
    const bool both = g * kFactorFeatures + 16 < layout.padded_value_dim;
    if constexpr (Wide >= 2) {
      if (both) {
        add_group<NR, 2, 0>(tile, chunk, g, own, factors, out);
        continue;
      }
    }
    add_group<NR, 1, 0>(tile, chunk, g, own, factors, out);
    if (both) add_group<NR, 1, 1>(tile, chunk, g, own, factors, out);
  }
}

// As add_chunk_values() of attention.inl.
template <class S, int NR, int Wide>
inline void add_narrow_values(const AttentionTile& tile, const Chunk& chunk, const float* p,
                              const float* factors, LinesAhead& lines, float* out) {
  if constexpr (kWhole<S, KvFormat::kI4>) {
    add_whole_narrow_values<S, NR>(tile, chunk, p, factors, lines, out);
  } else {
    add_float_narrow_values<NR, Wide>(tile, chunk, p, factors, out);
  }
}

}  // namespace
}  // namespace penstock
