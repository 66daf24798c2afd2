// AttentionKernels over Simd. Included after an instruction set's simd.h and simd_math.inl.
//
// A pass handles NR rows (queries sharing a KV head) and one chunk of 64 tokens: scores with 16
// tokens as lanes, one step of the online softmax per row, then the weighted sum with 16 features
// as lanes. The result of a row does not depend on the other rows of the pass; masked tokens add
// exact zeros.
#pragma once
#include "kernels/generic/attention_chunks.inl"
#include "kernels/generic/narrow_products.inl"
#include "kernels/generic/narrow_units.inl"

namespace penstock {
namespace {

// Computes scores of NR rows (from row r) with NU units (from unit u): p[row][64]. q: [dim][NR].
template <KvFormat K, int NR, int NU>
inline void score_units(const AttentionTile& tile, const Chunk& chunk, int r, int u, const float* q,
                        float* p) {
  constexpr int kStep = 2 * kUnitTokens * value_bytes(K);  // bytes of two features of a unit
  F acc[NR][NU];
  for (int i = 0; i < NR; ++i) {
    for (int j = 0; j < NU; ++j) acc[i][j] = Simd::zero();
  }
  const int n_pairs = tile.layout->padded_dim / 2;
  q += static_cast<int64_t>(r) * tile.layout->padded_dim;
  for (int64_t d = 0; d < n_pairs; ++d) {
    F a[NU], b[NU];
    for (int j = 0; j < NU; ++j) {
      const std::byte* ahead = chunk.next[u + j] + d * kStep;
      Simd::prefetch(ahead);
      if constexpr (kStep > 64) Simd::prefetch(ahead + 64);
    }
    for (int j = 0; j < NU; ++j)
      load_k_pair<K>(chunk.units[u + j], static_cast<int>(2 * d), a[j], b[j]);
    for (int i = 0; i < NR; ++i) {
      const F q0 = Simd::set1(q[i]), q1 = Simd::set1(q[NR + i]);
      for (int j = 0; j < NU; ++j) acc[i][j] = Simd::fma(a[j], q0, acc[i][j]);
      for (int j = 0; j < NU; ++j) acc[i][j] = Simd::fma(b[j], q1, acc[i][j]);
    }
    q += 2 * NR;
  }
  for (int i = 0; i < NR; ++i) {
    for (int j = 0; j < NU; ++j)
      Simd::store(p + (r + i) * kChunkTokens + (u + j) * kUnitTokens, acc[i][j]);
  }
}

// Rounds the queries of a pass of NR rows, of which n exist, to 16 bits: [padded_dim / 4][low
// bytes, high bytes][NR] fours, then [NR] scales, then [NR] negated corrections of the sums of high
// bytes for the bias of 128 in all bytes of a key.
template <class S, int NR>
inline void round_queries(const AttentionTile& tile, const AttentionRow* rows, int n, float scale,
                          float* q) {
  const int dim = tile.layout->padded_dim, head_dim = tile.layout->head_dim;
  const F by = S::set1(scale), none = S::zero();
  for (int i = 0; i < NR; ++i) {
    const auto part = [&](int d) {
      const int left = i < n ? head_dim - d : 0;
      return left >= 16 ? S::mul(S::load(rows[i].q + d), by)
             : left > 0 ? S::mul(S::load_n(rows[i].q + d, left), by)
                        : none;
    };
    F most = none;
    for (int d = 0; d < dim; d += 16) {
      const F x = part(d);
      most = S::max(S::max(x, S::sub(none, x)), most);
    }
    const float largest = S::reduce_max(most);
    const F inverse = S::set1(largest > 1e-30f ? kMostHalf / largest : 0.0f);
    typename S::Ints sum = S::zero_ints();
    for (int d = 0; d < dim; d += 16) {
      const typename S::Ints x = S::to_ints(S::mul(part(d), inverse)), high = S::over_256(x);
      sum = S::add_ints(sum, high);
      uint32_t fours[2][4];
      S::store_bytes(fours[0], x);
      S::store_bytes(fours[1], high);
      for (int j = 0; j < 8; ++j)
        __builtin_memcpy(q + (d / 2 + j) * NR + i, &fours[j % 2][j / 2], 4);
    }
    float* behind = q + dim / 2 * NR;
    behind[i] = largest / kMostHalf;
    const int32_t offset = -128 * S::reduce_add_ints(sum);
    __builtin_memcpy(behind + NR + i, &offset, 4);
  }
}

// As score_units(), with integer products.
template <class S, int NR, int NU>
inline void whole_score_units(const AttentionTile& tile, const Chunk& chunk, int r, int u,
                              const float* q, LinesAhead& lines, float* p) {
  LinesAhead ahead = lines;
  const int dim = tile.layout->padded_dim;
  q += static_cast<int64_t>(r) * dim;
  const float* scales = q + dim / 2 * NR;
  typename S::Ints low[NR][NU], high[NR][NU];
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < NU; ++j) {
      low[i][j] = S::zero_ints();
      high[i][j] = four_at<S>(scales + NR + i);
    }
  }
  for (int d = 0; d < dim; d += 4, q += 2 * NR) {
    typename S::Ints k[NU], lifted[NU];
    ahead.fetch<kWholeLines<NU>>();
#pragma GCC unroll 8
    for (int j = 0; j < NU; ++j) {
      k[j] = S::load_ints(chunk.units[u + j] + d * kUnitTokens);
      lifted[j] = S::lifted(k[j]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < NR; ++i) {
      const typename S::Ints a = four_at<S>(q + i), b = four_at<S>(q + NR + i);
#pragma GCC unroll 8
      for (int j = 0; j < NU; ++j) low[i][j] = S::dot_bytes(low[i][j], a, k[j]);
#pragma GCC unroll 8
      for (int j = 0; j < NU; ++j) high[i][j] = S::dot_bytes(high[i][j], lifted[j], b);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
    const F scale = S::set1(scales[i]);
#pragma GCC unroll 8
    for (int j = 0; j < NU; ++j) {
      const F score = S::to_float(S::add_ints(low[i][j], S::times_256(high[i][j])));
      S::store(p + (r + i) * kChunkTokens + (u + j) * kUnitTokens, S::mul(score, scale));
    }
  }
  lines = ahead;
}

// Completes a row's scores of a chunk in p (scales of keys, softcap, terms, mask); returns
// the largest of them and `before`. Plain, here and below: the chunk is whole, the row attends to
// all of it, and there are neither softcap nor terms.
template <KvFormat K, bool Plain>
[[gnu::always_inline]] inline F finish_scores(const AttentionTile& tile, const Chunk& chunk,
                                              const AttentionRow& row, float before, float* p) {
  const F lowest = Simd::set1(kLowest), cap = Simd::set1(tile.softcap);
  F highest = Simd::set1(before);
#pragma GCC unroll 4
  for (int u = Plain ? 0 : chunk.unit_begin; u < (Plain ? kChunkUnits : chunk.unit_end); ++u) {
    F s = Simd::load(p + u * kUnitTokens);
    if constexpr (kScaled<K>) {
      s = Simd::mul(
          s, Simd::load(reinterpret_cast<const float*>(chunk.units[u] + tile.layout->k_scales)));
    }
    if constexpr (!Plain) {
      const uint32_t lanes = visible_lanes(row, chunk.begin + u * kUnitTokens);
      if (tile.softcap > 0.0f) s = Simd::mul(tanh(s), cap);
      if (tile.has_terms)
        s = Simd::add(s, position_terms(tile, row, chunk.begin + u * kUnitTokens));
      if (lanes != 0xffffu) s = Simd::keep(lanes, s, lowest);
    }
    highest = Simd::max(highest, s);
    Simd::store(p + u * kUnitTokens, s);
  }
  return highest;
}

// Converts a row's scores in p to weights; returns the addends of their sum.
template <KvFormat K, bool Plain>
[[gnu::always_inline]] inline F weigh_scores(const AttentionTile& tile, const Chunk& chunk,
                                             const AttentionRow& row, float max, float* p) {
  const F m = Simd::set1(max);
  F e[kChunkUnits];
#pragma GCC unroll 4
  for (int u = 0; u < kChunkUnits; ++u) {
    e[u] = Simd::zero();
    F weight = e[u];
    const bool is_there = Plain || (u >= chunk.unit_begin && u < chunk.unit_end);
    const uint32_t lanes = Plain      ? 0xffffu
                           : is_there ? visible_lanes(row, chunk.begin + u * kUnitTokens)
                                      : 0;
    if (lanes != 0) {
      e[u] = exp(Simd::sub(Simd::load(p + u * kUnitTokens), m));
      if constexpr (!Plain) e[u] = Simd::keep(lanes, e[u], Simd::zero());
      weight = e[u];
      if constexpr (kScaled<K>) {
        const auto* scales = reinterpret_cast<const float*>(chunk.units[u] + tile.layout->v_scales);
        weight = Simd::mul(weight, Simd::load(scales));
        if constexpr (!Plain) weight = Simd::keep(lanes, weight, e[u]);
      }
    }
    Simd::store(p + u * kUnitTokens, weight);
  }
  return Simd::add(Simd::add(e[0], e[1]), Simd::add(e[2], e[3]));
}

// One step of the online softmax of the n rows from `rows` on: converts p from scores to weights
// and computes the factors of the old sums. Rows are interleaved to hide latency.
template <KvFormat K, int NR, bool Plain>
[[gnu::flatten]] inline void softmax_rows(const AttentionTile& tile, const Chunk& chunk, int r,
                                          int n, float* p, const AttentionState& state,
                                          LinesAhead& lines, float (&factors)[NR]) {
  // nonexistent rows are computed, too: their number is constant
  if constexpr (Plain) n = NR;
  const AttentionRow* rows = tile.rows + r;
  F highest[NR], sums[NR];
  float max[NR];
  alignas(64) float old[16] = {};
  bool changed = false;
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i)
    highest[i] =
        finish_scores<K, Plain>(tile, chunk, rows[i], state.max[r + i], p + i * kChunkTokens);
  lines.fetch_with_softmax<K, NR>(*tile.layout);
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) max[i] = Simd::reduce_max(highest[i]);
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i)
    sums[i] = weigh_scores<K, Plain>(tile, chunk, rows[i], max[i], p + i * kChunkTokens);
  lines.fetch_with_softmax<K, NR>(*tile.layout);
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {
    old[i] = state.max[r + i] - max[i];
    changed = changed || max[i] != state.max[r + i];
    state.max[r + i] = max[i];
  }
  if (changed) Simd::store(old, exp(Simd::load(old)));
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) factors[i] = i >= n ? 0.0f : changed ? old[i] : 1.0f;
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i)
    state.sum[r + i] = state.sum[r + i] * factors[i] + Simd::reduce_add(sums[i]);
}

template <KvFormat K, int NR>
inline void softmax_step(const AttentionTile& tile, const Chunk& chunk, int r, float* p,
                         const AttentionState& state, LinesAhead& lines, float (&factors)[NR]) {
  const int n = tile.n_rows - r < NR ? tile.n_rows - r : NR, end = chunk.begin + kChunkTokens;
  p += static_cast<int64_t>(r) * kChunkTokens;
  bool plain = chunk.unit_begin == 0 && chunk.unit_end == kChunkUnits && tile.softcap <= 0.0f &&
               !tile.has_terms;
  for (int i = r; i < r + n; ++i) {
    const AttentionRow& row = tile.rows[i];
    plain = plain && row.first <= chunk.begin && row.end >= end &&
            (row.tree_mask == 0 || row.tree_begin >= end);
  }
  if (plain) {
    softmax_rows<K, NR, true>(tile, chunk, r, n, p, state, lines, factors);
  } else {
    softmax_rows<K, NR, false>(tile, chunk, r, n, p, state, lines, factors);
  }
}

// acc[row][j] += weights of tokens t, t + 1 times their features. last: token t + 1 does not exist
// (its slot may contain anything, even NaN).
template <KvFormat K, int NR, int NJ, int Half = -1>
inline void add_value_pair(const std::byte* v, int t, int d, int dim, const float* weight,
                           bool last, F (&acc)[NR][NJ]) {
  for (int j = 0; j < NJ; ++j) {
    F a, b;
    load_v_pair<K, Half>(v, t, d + 16 * j, dim, a, b);
    for (int i = 0; i < NR; ++i)
      acc[i][j] = Simd::fma(a, Simd::set1(weight[i * kChunkTokens + t]), acc[i][j]);
    if (last) continue;
    for (int i = 0; i < NR; ++i)
      acc[i][j] = Simd::fma(b, Simd::set1(weight[i * kChunkTokens + t + 1]), acc[i][j]);
  }
}

// out[NR rows][16 * NJ features from d] = out * factor + p V.
template <KvFormat K, int NR, int NJ>
inline void add_values(const AttentionTile& tile, const Chunk& chunk, int d, const float* p,
                       const float* factors, float* out) {
  const int dim = tile.layout->padded_value_dim;
  F acc[NR][NJ];
  for (int i = 0; i < NR; ++i) {
    for (int j = 0; j < NJ; ++j) {
      acc[i][j] = Simd::mul(Simd::load(out + i * dim + d + 16 * j), Simd::set1(factors[i]));
    }
  }
  for (int u = chunk.unit_begin; u < chunk.unit_end; ++u) {
    const std::byte* v = chunk.values[u];
    const std::byte* ahead =
        chunk.next[u] + tile.layout->v_offset + static_cast<int64_t>(2) * d * value_bytes(K);
    const float* weight = p + u * kUnitTokens;
    const int left = chunk.end - chunk.begin - u * kUnitTokens,
              n = left < kUnitTokens ? left : kUnitTokens;
    int t = 0;
    for (; K == KvFormat::kI8 && t + 4 <= n; t += 4) {
      for (int line = 0; line < NJ; ++line) Simd::prefetch(ahead + line * 64);
      ahead += static_cast<int64_t>(4) * dim;
      add_value_pair<K, NR, NJ, 0>(v, t, d, dim, weight, false, acc);
      add_value_pair<K, NR, NJ, 1>(v, t + 2, d, dim, weight, false, acc);
    }
    for (; t + 2 <= n; t += 2) {
      for (int line = 0; line < (NJ * value_bytes(K) + 1) / 2; ++line)
        Simd::prefetch(ahead + line * 64);
      ahead += static_cast<int64_t>(2) * dim * value_bytes(K);
      add_value_pair<K, NR, NJ>(v, t, d, dim, weight, false, acc);
    }
    if (t < n) add_value_pair<K, NR, NJ>(v, t, d, dim, weight, true, acc);
  }
  for (int i = 0; i < NR; ++i) {
    for (int j = 0; j < NJ; ++j) Simd::store(out + i * dim + d + 16 * j, acc[i][j]);
  }
}

// Converts the weights of NR rows for a chunk from floats to 16-bit integers in place: for each row
// [4][kChunkUnits] groups of four low bytes, then as many of high bytes. units: value of weight 1
// for each row.
template <class S, int NR>
inline void round_weights(float* p, float (&units)[NR]) {
  largest_weights<NR>(p, units);
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
    const F inverse = S::set1(units[i] > 1e-30f ? kMostHalf / units[i] : 0.0f);
    float* row = p + i * kChunkTokens;
    const auto at = [&](int token) { return S::mul(S::load(row + token), inverse); };
    S::store_halves(row, S::to_words(at(0), at(16), at(32), at(48)));
    units[i] /= kMostHalf;
  }
}

// As add_values(), with integer products. p, units: from round_weights(). Nonexistent tokens have
// weight zero.
template <class S, int NR, int NJ>
inline void add_whole_values(const AttentionTile& tile, const Chunk& chunk, int d, const float* p,
                             const float* factors, const float* units, LinesAhead& lines,
                             float* out) {
  LinesAhead ahead = lines;
  const int dim = tile.layout->padded_value_dim;
  typename S::Ints low[NR][NJ], high[NR][NJ];
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < NJ; ++j) low[i][j] = high[i][j] = S::zero_ints();
  }
  for (int u = chunk.unit_begin; u < chunk.unit_end; ++u) {
    const std::byte* v = chunk.values[u] + int64_t{4} * d;
    for (int t = 0; t < 4; ++t, v += int64_t{4} * dim) {
      typename S::Ints x[NJ];
      ahead.fetch<kWholeLines<NJ>>();
#pragma GCC unroll 8
      for (int j = 0; j < NJ; ++j) x[j] = S::load_ints(v + 64 * j);
#pragma GCC unroll 8
      for (int i = 0; i < NR; ++i) {
        const float* four = p + i * kChunkTokens + t * kChunkUnits + u;
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
      float* to = out + i * dim + d + 16 * j;
      const F sum = S::to_float(S::add_ints(low[i][j], S::times_256(high[i][j])));
      S::store(to, S::fma(sum, unit, S::mul(S::load(to), factor)));
    }
  }
  lines = ahead;
}

template <class S, KvFormat K, int NR, int Wide>
inline void score_chunk(const AttentionTile& tile, const Chunk& chunk, int r, const float* q,
                        LinesAhead& lines, float* p) {
  int u = chunk.unit_begin;
  if constexpr (kWhole<S, K>) {
    if (tile.layout->padded_dim <= kMostWholeDim) {
      constexpr int kWide = kWholeWide<NR>;
      for (; u + kWide <= chunk.unit_end; u += kWide)
        whole_score_units<S, NR, kWide>(tile, chunk, r, u, q, lines, p);
      for (; u < chunk.unit_end; ++u) whole_score_units<S, NR, 1>(tile, chunk, r, u, q, lines, p);
      return;
    }
  }
  for (; u + Wide <= chunk.unit_end; u += Wide) score_units<K, NR, Wide>(tile, chunk, r, u, q, p);
  for (; u < chunk.unit_end; ++u) score_units<K, NR, 1>(tile, chunk, r, u, q, p);
}

// Adds a chunk's values to the sums of NR rows. p: their weights, which may be overwritten.
template <class S, KvFormat K, int NR, int Wide>
inline void add_chunk_values(const AttentionTile& tile, const Chunk& chunk, float* p,
                             const float* factors, LinesAhead& lines, float* out) {
  const int dim = tile.layout->padded_value_dim;
  int d = 0;
  if constexpr (kWhole<S, K>) {
    float units[NR];
    round_weights<S, NR>(p, units);
    constexpr int kWide = kWholeWide<NR>;
    for (; d + 16 * kWide <= dim; d += 16 * kWide)
      add_whole_values<S, NR, kWide>(tile, chunk, d, p, factors, units, lines, out);
    for (; d < dim; d += 16)
      add_whole_values<S, NR, 1>(tile, chunk, d, p, factors, units, lines, out);
  } else {
    for (; d + 16 * Wide <= dim; d += 16 * Wide)
      add_values<K, NR, Wide>(tile, chunk, d, p, factors, out);
    for (; d < dim; d += 16) add_values<K, NR, 1>(tile, chunk, d, p, factors, out);
  }
}

template <KvFormat K, int NR>
void attend_rows(const AttentionTile& tile, const Chunk& chunk, int r, const float* q, float* p,
                 const AttentionState& state) {
  constexpr int kPerRow = Simd::kAccumulators / NR;
  constexpr int kWide = kPerRow >= 4 ? 4 : kPerRow >= 2 ? 2 : 1;
  LinesAhead lines(chunk);
  float factors[NR];
  float* weights = p + static_cast<int64_t>(r) * kChunkTokens;
  float* out = state.out + static_cast<int64_t>(r) * tile.layout->padded_value_dim;
  if constexpr (K == KvFormat::kI4) {
    score_narrow_chunk<Simd, NR, kWide>(tile, chunk, r, q, lines, p);
    softmax_step<K>(tile, chunk, r, p, state, lines, factors);
    add_narrow_values<Simd, NR, kWide>(tile, chunk, weights, factors, lines, out);
  } else {
    score_chunk<Simd, K, NR, kWide>(tile, chunk, r, q, lines, p);
    softmax_step<K>(tile, chunk, r, p, state, lines, factors);
    add_chunk_values<Simd, K, NR, kWide>(tile, chunk, weights, factors, lines, out);
  }
  lines.fetch_scales<K>(*tile.layout);
}

// Whether no row of [r, r + n) attends to a token of the chunk.
inline bool unseen(const AttentionTile& tile, int chunk_begin, int r, int n) {
  for (int i = r; i < r + n && i < tile.n_rows; ++i) {
    if (tile.rows[i].end > chunk_begin && tile.rows[i].first < chunk_begin + kChunkTokens)
      return false;
  }
  return true;
}

// Returns the rows of the next pass if `left` rows remain. The last pass may have more rows than
// exist: their results are not used (states have room for them).
inline int pass_rows(int left) {
  if (Simd::kRows >= 8 && left > 4) return 8;
  return left > 2 ? 4 : left;
}

template <KvFormat K>
void attend_chunk(const AttentionTile& tile, const Chunk& chunk, const float* q, float* p,
                  const AttentionState& state) {
  for (int r = 0, n = 0; r < tile.n_rows; r += n) {
    n = pass_rows(tile.n_rows - r);
    if (unseen(tile, chunk.begin, r, n)) continue;
    if (n == 1) attend_rows<K, 1>(tile, chunk, r, q, p, state);
    if (n == 2) attend_rows<K, 2>(tile, chunk, r, q, p, state);
    if (n == 4) attend_rows<K, 4>(tile, chunk, r, q, p, state);
    if constexpr (Simd::kRows >= 8) {
      if (n == 8) attend_rows<K, 8>(tile, chunk, r, q, p, state);
    }
  }
}

template <class S>
inline void round_pass_queries(const AttentionTile& tile, int r, int n, float scale, float* q) {
  const AttentionRow* rows = tile.rows + r;
  const int left = tile.n_rows - r;
  if (n == 1) round_queries<S, 1>(tile, rows, left, scale, q);
  if (n == 2) round_queries<S, 2>(tile, rows, left, scale, q);
  if (n == 4) round_queries<S, 4>(tile, rows, left, scale, q);
  if (n == 8) round_queries<S, 8>(tile, rows, left, scale, q);
}

// Arranges the queries of all rows, scaled and padded, pass by pass: [padded_dim][rows of the
// pass].
template <KvFormat K>
void arrange_queries(const AttentionTile& tile, float scale, float* q) {
  const int dim = tile.layout->padded_dim, head_dim = tile.layout->head_dim;
  for (int r = 0, n = 0; r < tile.n_rows; r += n) {
    n = pass_rows(tile.n_rows - r);
    float* to = q + static_cast<int64_t>(r) * dim;
    if constexpr (kWhole<Simd, K>) {
      if (dim <= kMostWholeDim) {
        round_pass_queries<Simd>(tile, r, n, scale, to);
        continue;
      }
    }
    for (int i = 0; i < n; ++i) {
      const float* from = r + i < tile.n_rows ? tile.rows[r + i].q : nullptr;
      for (int d = 0; d < dim; ++d) {
        to[d * n + i] = from != nullptr && d < head_dim ? from[d] * scale : 0.0f;
      }
    }
  }
}

inline const std::byte* unit_at(const AttentionTile& tile, int token) {
  const int unit = (token - tile.first_position) / kUnitTokens;
  const int64_t block = tile.block_table[unit / tile.units_per_block];
  return tile.units +
         (block * tile.units_per_block + unit % tile.units_per_block) * tile.unit_stride;
}

// Returns the chunk at `begin` of tokens [first, end), to which some row attends.
inline Chunk make_chunk(const AttentionTile& tile, int begin, int first, int end) {
  Chunk chunk = {};
  chunk.begin = begin;
  chunk.end = end < begin + kChunkTokens ? end : begin + kChunkTokens;
  chunk.unit_begin = first > begin ? (first - begin) / kUnitTokens : 0;
  chunk.unit_end = (chunk.end - begin + kUnitTokens - 1) / kUnitTokens;
  for (int u = chunk.unit_begin; u < chunk.unit_end; ++u) {
    const int token = begin + u * kUnitTokens;
    chunk.units[u] = unit_at(tile, token);
    chunk.values[u] = chunk.units[u] + tile.layout->v_offset;
    chunk.next[u] =
        token + kChunkTokens < end ? unit_at(tile, token + kChunkTokens) : chunk.units[u];
  }
  for (auto& next : chunk.next) next = next != nullptr ? next : chunk.next[chunk.unit_begin];
  return chunk;
}

// Returns the same chunk of head h. Units of neighbouring heads are adjacent: the next head's are
// prefetched, and with the last head the next chunk's.
inline Chunk chunk_of_head(const AttentionTile& tile, const Chunk& first, int h) {
  const int64_t bytes = tile.layout->bytes, offset = h * bytes;
  const bool is_last = h + 1 == tile.n_heads;
  Chunk chunk;
  chunk.begin = first.begin;
  chunk.unit_begin = first.unit_begin;
  chunk.unit_end = first.unit_end;
  chunk.end = first.end;
  for (int u = 0; u < kChunkUnits; ++u) {
    const bool is_there = u >= first.unit_begin && u < first.unit_end;
    chunk.units[u] = is_there ? first.units[u] + offset : nullptr;
    chunk.values[u] = is_there ? first.values[u] + offset : nullptr;
    chunk.next[u] = is_last || !is_there ? first.next[u] : first.units[u] + offset + bytes;
  }
  return chunk;
}

// Transposes keys of a chunk to the layout of values, once for all rows, for layers whose values
// are in their keys.
template <KvFormat K>
void turn_chunk(const AttentionTile& tile, Chunk& chunk, std::byte* to) {
  for (int u = chunk.unit_begin; u < chunk.unit_end; ++u) {
    turn_unit<K>(chunk.units[u], tile.layout->padded_value_dim, to);
    chunk.values[u] = to;
    to += int64_t{kUnitTokens} * tile.layout->padded_value_dim * value_bytes(K);
  }
}

// Returns the tile with the rows of head h only.
inline AttentionTile tile_of_head(const AttentionTile& all, int h) {
  AttentionTile tile = all;
  tile.rows += h * all.head_rows;
  tile.n_heads = 1;
  return tile;
}
inline AttentionState state_of_head(const AttentionTile& all, const AttentionState& state, int h) {
  const int r = h * all.head_rows;
  return {state.max + r, state.sum + r,
          state.out + static_cast<int64_t>(r) * all.layout->padded_value_dim};
}

// Tokens to which some row attends.
struct TokenRange {
  int first, end;
};

// Initializes the states of all rows for no tokens; returns the tokens to which some row attends.
inline TokenRange begin_states(const AttentionTile& tile, const AttentionState& state) {
  const int dim = tile.layout->padded_value_dim;
  TokenRange range = {tile.end, tile.begin};
  for (int h = 0; h < tile.n_heads; ++h) {
    const int first_row = h * tile.head_rows, end_row = first_row + tile.n_rows;
    // Passes compute nonexistent rows, too.
    for (int r = first_row; r < first_row + (tile.n_rows + 3) / 4 * 4; ++r)
      state.max[r] = kLowest, state.sum[r] = 0.0f;
    for (int r = first_row; r < end_row; ++r) {
      const AttentionRow& row = tile.rows[r];
      for (int d = 0; d < dim; d += 16)
        Simd::store(state.out + static_cast<int64_t>(r) * dim + d, Simd::zero());
      range.first = row.first < range.first ? row.first : range.first;
      range.end = row.end > range.end ? row.end : range.end;
    }
  }
  range.first = range.first > tile.begin ? range.first : tile.begin;
  range.end = range.end < tile.end ? range.end : tile.end;
  return range;
}

// Widens the units of a chunk of kI4.
inline void widen_chunk(const KvUnitLayout& layout, const KvUnitLayout& wide, Chunk& chunk,
                        std::byte* to) {
  for (int u = chunk.unit_begin; u < chunk.unit_end; ++u, to += wide.bytes) {
    widen_unit(layout, wide, chunk.units[u], to);
    chunk.units[u] = to;
  }
}

// Attends to units of kI4 whose values are in their keys: these are widened chunk by chunk, once for
// all rows.
void attend_narrow_keys(const AttentionTile& tile, const AttentionState& state) {
  constexpr KvFormat kWide = KvFormat::kI8;
  const KvUnitLayout wide = tile.layout->widened();
  AttentionTile all = tile;
  all.layout = &wide;
  const int64_t dim = wide.padded_dim;
  float* q = tile.scratch;
  float* p = q + kMaxTileRows * dim;
  auto* units = reinterpret_cast<std::byte*>(p + kMaxTileRows * kChunkTokens);
  std::byte* values = units + kChunkUnits * wide.bytes;
  const float scale = tile.softcap > 0.0f ? tile.scale / tile.softcap : tile.scale;
  for (int h = 0; h < tile.n_heads; ++h)
    arrange_queries<kWide>(tile_of_head(all, h), scale, q + h * tile.head_rows * dim);
  const auto [first, end] = begin_states(tile, state);
  for (int begin = first / kChunkTokens * kChunkTokens; begin < end; begin += kChunkTokens) {
    const Chunk chunk = make_chunk(tile, begin, first, end);
    for (int h = 0; h < tile.n_heads; ++h) {
      Chunk own = chunk_of_head(tile, chunk, h);
      widen_chunk(*tile.layout, wide, own, units);
      turn_chunk<kWide>(all, own, values);
      attend_chunk<kWide>(tile_of_head(all, h), own, q + h * tile.head_rows * dim, p,
                          state_of_head(all, state, h));
    }
  }
}

template <KvFormat K>
void attend(const AttentionTile& tile, const AttentionState& state) {
  if constexpr (K == KvFormat::kI4) {
    if (tile.layout->values_in_keys) return attend_narrow_keys(tile, state);
  }
  const int64_t dim = tile.layout->padded_dim;
  float* q = tile.scratch;
  float* p = q + kMaxTileRows * dim;
  [[maybe_unused]] auto* values = reinterpret_cast<std::byte*>(p + kMaxTileRows * kChunkTokens);
  const float scale = tile.softcap > 0.0f ? tile.scale / tile.softcap : tile.scale;
  for (int h = 0; h < tile.n_heads; ++h)
    arrange_queries<K>(tile_of_head(tile, h), scale, q + h * tile.head_rows * dim);
  const auto [first, end] = begin_states(tile, state);
  for (int begin = first / kChunkTokens * kChunkTokens; begin < end; begin += kChunkTokens) {
    const Chunk chunk = make_chunk(tile, begin, first, end);
    for (int h = 0; h < tile.n_heads; ++h) {
      Chunk own = chunk_of_head(tile, chunk, h);
      if constexpr (K != KvFormat::kI4) {
        if (tile.layout->values_in_keys) turn_chunk<K>(tile, own, values);
      }
      attend_chunk<K>(tile_of_head(tile, h), own, q + h * tile.head_rows * dim, p,
                      state_of_head(tile, state, h));
    }
  }
}

void scale_row(const float* from, float factor, int n, float* to) {
  const F f = Simd::set1(factor);
  int i = 0;
  for (; i + 16 <= n; i += 16) Simd::store(to + i, Simd::mul(Simd::load(from + i), f));
  for (; i < n; ++i) to[i] = from[i] * factor;
}

void merge_states(const AttentionState& state, const AttentionState& other, int n_rows,
                  int padded_value_dim) {
  for (int r = 0; r < n_rows; ++r) {
    const float a = state.max[r], b = other.max[r], max = a > b ? a : b;
    const F fa = exp(Simd::set1(a - max)), fb = exp(Simd::set1(b - max));
    float* to = state.out + static_cast<int64_t>(r) * padded_value_dim;
    const float* from = other.out + static_cast<int64_t>(r) * padded_value_dim;
    for (int d = 0; d < padded_value_dim; d += 16) {
      Simd::store(to + d, Simd::fma(Simd::load(to + d), fa, Simd::mul(Simd::load(from + d), fb)));
    }
    alignas(64) float factors[32];
    Simd::store(factors, fa);
    Simd::store(factors + 16, fb);
    state.sum[r] = state.sum[r] * factors[0] + other.sum[r] * factors[16];
    state.max[r] = max;
  }
}

// Writes one token's values, `stride` elements apart.
template <KvFormat K>
inline void store_values(const float* x, int n, std::byte* to, int64_t stride, int pair_stride) {
  for (int d = 0; d < n; ++d) {
    const int64_t at =
        K == KvFormat::kBF16 ? (d / pair_stride) * stride + d % pair_stride : d * stride;
    if constexpr (K == KvFormat::kF32) reinterpret_cast<float*>(to)[at] = x[d];
    if constexpr (K == KvFormat::kF16) reinterpret_cast<uint16_t*>(to)[at] = Simd::to_f16(x[d]);
    if constexpr (K == KvFormat::kBF16) reinterpret_cast<uint16_t*>(to)[at] = Simd::to_bf16(x[d]);
  }
}

// Rounds values to multiples of max|x| / 127; n_together codes are adjacent. Returns the scale.
inline float store_i8(const float* x, int n, int8_t* to, int64_t stride, int n_together) {
  float most = 0.0f;
  for (int d = 0; d < n; ++d) {
    const float a = x[d] < 0.0f ? -x[d] : x[d];
    most = a > most ? a : most;
  }
  const float inverse = most > 0.0f ? 127.0f / most : 0.0f;
  for (int d = 0; d < n; ++d) {
    const float scaled = x[d] * inverse;
    to[d / n_together * stride + d % n_together] =
        static_cast<int8_t>(static_cast<int>(scaled + (scaled < 0.0f ? -0.5f : 0.5f)));
  }
  return most / 127.0f;
}

template <KvFormat K>
void store_token(const KvUnitLayout& layout, const float* k, const float* v, std::byte* unit,
                 int lane) {
  const int n = layout.head_dim, n_values = layout.value_dim, dim = layout.padded_value_dim;
  std::byte* values = unit + layout.v_offset;
  if constexpr (K == KvFormat::kI8) {
    auto* k_scales = reinterpret_cast<float*>(unit + layout.k_scales);
    k_scales[lane] = store_i8(k, n, reinterpret_cast<int8_t*>(unit) + 4 * lane, 4 * kUnitTokens, 4);
    if (layout.values_in_keys) return;
    auto* v_scales = reinterpret_cast<float*>(unit + layout.v_scales);
    auto* v_four = reinterpret_cast<int8_t*>(values) + static_cast<int64_t>(lane / 4) * dim * 4;
    v_scales[lane] = store_i8(v, n_values, v_four + lane % 4, 4, 1);
  } else if constexpr (K == KvFormat::kBF16) {
    store_values<K>(k, n, unit + lane * 4, 2 * kUnitTokens, 2);
    if (layout.values_in_keys) return;
    store_values<K>(v, n_values, values + (static_cast<int64_t>(lane / 2) * dim * 2 + lane % 2) * 2,
                    2, 1);
  } else {
    store_values<K>(k, n, unit + lane * value_bytes(K), kUnitTokens, 1);
    if (layout.values_in_keys) return;
    store_values<K>(v, n_values, values + static_cast<int64_t>(lane) * dim * value_bytes(K), 1, 1);
  }
}

// sums[j] += weights of heads [h, h + NR) times their positive scores with the tokens of unit j.
template <KvFormat K, int NR, int NU>
inline void add_index_scores(const IndexQuery& query, const std::byte* const (&units)[NU], int h,
                             F (&sums)[NU]) {
  const int dim = query.layout->head_dim;
  const float* q = query.q + static_cast<int64_t>(h) * dim;
  F acc[NR][NU];
  for (int i = 0; i < NR; ++i) {
    for (int j = 0; j < NU; ++j) acc[i][j] = Simd::zero();
  }
  for (int d = 0; d < dim; d += 2) {
    F a[NU], b[NU];
    for (int j = 0; j < NU; ++j) load_k_pair<K>(units[j], d, a[j], b[j]);
    for (int i = 0; i < NR; ++i) {
      const F q0 = Simd::set1(q[i * dim + d]), q1 = Simd::set1(q[i * dim + d + 1]);
      for (int j = 0; j < NU; ++j) acc[i][j] = Simd::fma(b[j], q1, Simd::fma(a[j], q0, acc[i][j]));
    }
  }
  const F least = Simd::set1(query.least);
  for (int i = 0; i < NR; ++i) {
    const F weight = Simd::set1(query.weights[h + i]);
    for (int j = 0; j < NU; ++j) sums[j] = Simd::fma(Simd::max(acc[i][j], least), weight, sums[j]);
  }
}

template <KvFormat K, int NU>
inline void score_index_units(const IndexQuery& query, int begin, float* scores) {
  // rows of accumulators, whose products overlap
  constexpr int kHeads = Simd::kAccumulators >= 8 ? 4 : 2;
  const std::byte* units[NU];
  F sums[NU];
  for (int j = 0; j < NU; ++j) {
    const int64_t block = query.block_table[(begin + j) / query.units_per_block];
    units[j] = query.units + (block * query.units_per_block + (begin + j) % query.units_per_block) *
                                 query.unit_stride;
    sums[j] = Simd::zero();
  }
  int h = 0;
  for (; h + kHeads <= query.n_heads; h += kHeads)
    add_index_scores<K, kHeads, NU>(query, units, h, sums);
  for (; h < query.n_heads; ++h) add_index_scores<K, 1, NU>(query, units, h, sums);
  for (int j = 0; j < NU; ++j) {
    if constexpr (K == KvFormat::kI8)
      sums[j] = Simd::mul(
          sums[j], Simd::load(reinterpret_cast<const float*>(units[j] + query.layout->k_scales)));
    Simd::store(scores + j * kUnitTokens, sums[j]);
  }
}

template <KvFormat K>
void score_index(const IndexQuery& query, int begin, int end, float* scores) {
  constexpr int kWide = Simd::kAccumulators >= 8 ? 4 : Simd::kAccumulators >= 4 ? 2 : 1;
  int u = begin;
  for (; u + kWide <= end; u += kWide)
    score_index_units<K, kWide>(query, u, scores + (u - begin) * kUnitTokens);
  for (; u < end; ++u) score_index_units<K, 1>(query, u, scores + (u - begin) * kUnitTokens);
}

}  // namespace
}  // namespace penstock
