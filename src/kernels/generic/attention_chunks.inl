// What attention.inl and narrow_products.inl share: K and V of a unit as floats, which tokens a row
// sees, chunks of 64 tokens, and what is fetched ahead. Included after an instruction set's simd.h
// and simd_math.inl.
#pragma once
#include "kernels/attention_kernels.h"
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
  if constexpr (K == KvFormat::kI4)
    return Simd::load_i4_pairs(unit + d / 8 * 64, d % 4 * 8 + d % 8 / 4 * 4, a, b);
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
  if constexpr (K == KvFormat::kI4) {
    const int n_groups = (dim + kFactorFeatures - 1) / kFactorFeatures,
              at = t / 4 * n_groups + d / kFactorFeatures;
    return Simd::load_i4_pairs(v + int64_t{at} * 64, t % 4 * 8 + d % 32 / 16 * 4, a, b);
  }
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

// K and V of int8 and of 4 bits are multiplied as integers, with queries and weights of 16 bits split into low and
// high bytes: products of bytes need no unpacking and lose no precision.
template <class S, KvFormat K>
constexpr bool kWhole = (K == KvFormat::kI8 || K == KvFormat::kI4) && WholeNumberSimd<S>;
// Whether keys and values have scales of their tokens.
template <KvFormat K>
constexpr bool kScaled = K == KvFormat::kI8 || K == KvFormat::kI4;
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
    for (int d = 0; d < layout.padded_dim; d += K == KvFormat::kI4 ? 16 : 8) fetch<kChunkUnits>();
  }
  // Prefetches the lines of the scales, and of the factors.
  template <KvFormat K>
  [[gnu::always_inline]] void fetch_scales(const KvUnitLayout& layout) {
    if (!kWhole<Simd, K>) return;
    fetch<2 * kChunkUnits>();
    if (K != KvFormat::kI4) return;
    for (int g = 0; g < layout.value_groups(); ++g) fetch<2>();
  }
  const std::byte* at[kChunkUnits];
};

// Broadcasts the four bytes at p to all lanes.
template <class S>
[[gnu::always_inline]] inline typename S::Ints four_at(const float* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return S::set1_ints(four);
}

}  // namespace
}  // namespace penstock
