// AttentionKernels over Simd. Included after an instruction set's simd.h and simd_math.inl.
//
// A pass handles NR rows (queries sharing a KV head) and one chunk of 64 tokens: scores with 16
// tokens as lanes, one step of the online softmax per row, then the weighted sum with 16 features
// as lanes. The result of a row does not depend on the other rows of the pass; masked tokens add
// exact zeros.
#pragma once
#include "kernels/generic/narrow_units.inl"
#include "kernels/generic/simd_math.inl"
#include "kernels/generic/turn_keys.inl"

namespace penstock {
namespace {

constexpr float kLowest = -1e30f;
constexpr int kChunkUnits = kChunkTokens / kUnitTokens;

// Loads features d and d + 1 (d even) of a unit's 16 tokens. Half: d % 4 / 2 if
// known at compile time, which is faster for int8; else -1. Likewise below, for
// tokens.
template <KvFormat K, int Half = -1>
[[gnu::always_inline]] inline void load_k_pair(const std::byte* unit, int d, F& a, F& b) {
  const int at = K == KvFormat::kI8 ? d - d % 4 : d;
  const std::byte* p = unit + static_cast<int64_t>(at) * kUnitTokens * value_bytes(K);
  if constexpr (K == KvFormat::kF32) {
    a = Simd::load(reinterpret_cast<const float*>(p));
    b = Simd::load(reinterpret_cast<const float*>(p) + 16);
  } else if constexpr (K == KvFormat::kF16) {
    a = Simd::load_f16(reinterpret_cast<const uint16_t*>(p));
    b = Simd::load_f16(reinterpret_cast<const uint16_t*>(p) + 16);
  } else if constexpr (K == KvFormat::kBF16) {
    Simd::load_bf16_pairs(reinterpret_cast<const uint16_t*>(p), a, b);
  } else {
    Simd::load_i8_pairs(reinterpret_cast<const int8_t*>(p), Half >= 0 ? Half : d % 4 / 2, a, b);
  }
}

// Loads features d..d + 15 of tokens t and t + 1 (t even). v: the V part of a unit.
template <KvFormat K, int Half = -1>
[[gnu::always_inline]] inline void load_v_pair(const std::byte* v, int t, int d, int dim, F& a,
                                               F& b) {
  constexpr int kTogether = K == KvFormat::kBF16 ? 2 : K == KvFormat::kI8 ? 4 : 1;
  const std::byte* p =
      v + (static_cast<int64_t>(t - t % kTogether) * dim + kTogether * d) * value_bytes(K);
  if constexpr (K == KvFormat::kF32) {
    a = Simd::load(reinterpret_cast<const float*>(p));
    b = Simd::load(reinterpret_cast<const float*>(p) + dim);
  } else if constexpr (K == KvFormat::kF16) {
    a = Simd::load_f16(reinterpret_cast<const uint16_t*>(p));
    b = Simd::load_f16(reinterpret_cast<const uint16_t*>(p) + dim);
  } else if constexpr (K == KvFormat::kBF16) {
    Simd::load_bf16_pairs(reinterpret_cast<const uint16_t*>(p), a, b);
  } else {
    Simd::load_i8_pairs(reinterpret_cast<const int8_t*>(p), Half >= 0 ? Half : t % 4 / 2, a, b);
  }
}

// Returns the attention mask: bit i is set if the row attends to token base + i.
inline uint32_t visible_lanes(const AttentionRow& row, int base) {
  const int lo = row.first - base, hi = row.end - base;
  if (hi <= 0 || lo >= kUnitTokens) return 0;
  uint32_t lanes = hi >= kUnitTokens ? 0xffffu : (1u << hi) - 1;
  if (lo > 0) lanes &= 0xffffu << lo;
  const int shift = row.tree_begin - base;
  if (row.tree_mask != 0 && shift < kUnitTokens) {
    const uint32_t older = shift > 0 ? (1u << shift) - 1 : 0;
    const uint64_t drafts = shift >= 0    ? row.tree_mask << shift
                            : shift > -64 ? row.tree_mask >> -shift
                                          : 0;
    lanes &= older | static_cast<uint32_t>(drafts & 0xffffu);
  }
  return lanes;
}

// Returns the terms of a row's scores by position for tokens base .. base + 15. The position of a
// draft node is its depth in the tree: the nodes that the row attends to before it are its
// ancestors.
inline F position_terms(const AttentionTile& tile, const AttentionRow& row, int base) {
  alignas(64) float added[kUnitTokens];
  for (int i = 0; i < kUnitTokens; ++i) {
    int position = base + i;
    const int draft = position - row.tree_begin;
    if (row.tree_mask != 0 && draft > 0 && draft < 64)
      position =
          row.tree_begin + __builtin_popcountll(row.tree_mask & ((uint64_t{1} << draft) - 1));
    const int distance = position - row.position;
    added[i] = -row.slope * static_cast<float>(distance < 0 ? -distance : distance);
    if (tile.columns == nullptr) continue;
    const int near = distance < -tile.reach  ? -tile.reach
                     : distance > tile.reach ? tile.reach
                                             : distance;
    const auto column = static_cast<int>(tile.columns[near + tile.reach]);
    if (row.of_query != nullptr) added[i] += row.of_query[column];
    if (row.of_key != nullptr && base + i < row.end)
      added[i] += row.of_key[(base + i) * tile.key_stride + column];
  }
  return Simd::load(added);
}

struct Chunk {
  int begin;                             // index of the chunk's first token
  int unit_begin, unit_end;              // units with tokens that some row sees
  int end;                               // one past the last token that some row sees
  const std::byte* units[kChunkUnits];   // valid in [unit_begin, unit_end)
  const std::byte* values[kChunkUnits];  // their V
  // the same units of a later chunk (or of this one), to prefetch
  const std::byte* next[kChunkUnits];
};

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

// Int8 K and V are multiplied as integers, with queries and weights of 16 bits split into low and
// high bytes: products of bytes need no unpacking and lose no precision.
template <class S, KvFormat K>
constexpr bool kWhole = K == KvFormat::kI8 && WholeNumberSimd<S>;
// with bytes up to 127 and 512 features or 64 tokens, sums fit 32 bits
constexpr float kMostHalf = 32767.0f;
constexpr int kMostWholeDim = 512;
// Vectors per block of rows; each has accumulators for low and for high bytes.
template <int NR>
constexpr int kWholeWide = Simd::kAccumulators / (2 * NR) >= 4   ? 4
                           : Simd::kAccumulators / (2 * NR) >= 2 ? 2
                                                                 : 1;

// Cache lines prefetched with each product of `Wide` vectors.
template <int Wide>
constexpr int kWholeLines = (Wide + 1) / 2;

// Prefetches cache lines of the next units, round-robin over the units, since memory is read
// fastest as several streams. The rate is constant, because a core has a limited number of line
// fill buffers: half of the lines are prefetched with the products and half with the softmax; for
// eight rows and for values in keys, all with the products.
struct LinesAhead {
  explicit LinesAhead(const Chunk& chunk) {
    for (int u = 0; u < kChunkUnits; ++u) at[u] = chunk.next[u];
  }
  template <int N>  // REQUIRES: N is a power of two
  [[gnu::always_inline]] void fetch() {
    const std::byte* next[kChunkUnits];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) Simd::prefetch(at[i % kChunkUnits] + i / kChunkUnits * 64);
#pragma GCC unroll 8
    for (int i = 0; i < kChunkUnits; ++i)
      next[i] = at[(i + N) % kChunkUnits] + (i + N) / kChunkUnits * 64;
#pragma GCC unroll 8
    for (int i = 0; i < kChunkUnits; ++i) at[i] = next[i];
  }
  // Prefetches one of two parts of the lines that belong to the softmax of NR rows.
  template <KvFormat K, int NR>
  [[gnu::always_inline]] void fetch_with_softmax(const KvUnitLayout& layout) {
    if (!kWhole<Simd, K> || kWholeWide<NR> == 1 || layout.values_in_keys) return;
    for (int d = 0; d < layout.padded_dim; d += 8) fetch<kChunkUnits>();
  }
  const std::byte* at[kChunkUnits];
};

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

// Broadcasts the four bytes at p to all lanes.
template <class S>
[[gnu::always_inline]] inline typename S::Ints four_at(const float* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return S::set1_ints(four);
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

// Completes a row's scores of a chunk in p (scales of int8 keys, softcap, terms, mask); returns
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
    if constexpr (K == KvFormat::kI8) {
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
      if constexpr (K == KvFormat::kI8) {
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
  F most[NR];
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
    const float* row = p + i * kChunkTokens;
    most[i] = S::max(S::max(S::load(row), S::load(row + 16)),
                     S::max(S::load(row + 32), S::load(row + 48)));
  }
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) units[i] = S::reduce_max(most[i]);
#pragma GCC unroll 8
  for (int i = 0; i < NR; ++i) {
    const F inverse = S::set1(units[i] > 1e-30f ? kMostHalf / units[i] : 0.0f);
    S::store_halves(p + i * kChunkTokens, inverse);
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
  score_chunk<Simd, K, NR, kWide>(tile, chunk, r, q, lines, p);
  float factors[NR];
  softmax_step<K>(tile, chunk, r, p, state, lines, factors);
  add_chunk_values<Simd, K, NR, kWide>(
      tile, chunk, p + static_cast<int64_t>(r) * kChunkTokens, factors, lines,
      state.out + static_cast<int64_t>(r) * tile.layout->padded_value_dim);
  if constexpr (kWhole<Simd, K>) lines.fetch<2 * kChunkUnits>();  // prefetches the scales
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

template <KvFormat K>
void attend(const AttentionTile& tile, const AttentionState& state) {
  const int64_t dim = tile.layout->padded_dim;
  float* q = tile.scratch;
  float* p = q + kMaxTileRows * dim;
  auto* values = reinterpret_cast<std::byte*>(p + kMaxTileRows * kChunkTokens);
  const float scale = tile.softcap > 0.0f ? tile.scale / tile.softcap : tile.scale;
  for (int h = 0; h < tile.n_heads; ++h)
    arrange_queries<K>(tile_of_head(tile, h), scale, q + h * tile.head_rows * dim);
  const auto [first, end] = begin_states(tile, state);
  for (int begin = first / kChunkTokens * kChunkTokens; begin < end; begin += kChunkTokens) {
    const Chunk chunk = make_chunk(tile, begin, first, end);
    for (int h = 0; h < tile.n_heads; ++h) {
      Chunk own = chunk_of_head(tile, chunk, h);
      if (tile.layout->values_in_keys) turn_chunk<K>(tile, own, values);
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
