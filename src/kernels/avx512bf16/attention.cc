// Attention of prompts by `vdpbf16ps`, with K and V of any format converted to BF16.
// Few tokens, batch-invariant runs and F32 caches use the vector kernels of
// generic/.
#include <algorithm>
#include <cstring>

#include "kernels/attention_kernels.h"
#include "kernels/avx512bf16/tables.h"

#include "kernels/avx512/simd.h"

#include "kernels/generic/attention.inl"

namespace penstock {
namespace {

#include "kernels/avx512bf16/attention_flash.inl"

// Broadcasts a pair of BF16 to all lanes.
inline __m512bh pair_of(const void* p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}
inline __m512bh pairs_at(const std::byte* p) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
}

// Products in blocks of NR rows by NJ vectors with accumulators in registers: each operand is
// loaded once per block.
struct PairUnits {
  struct Scope {};

  // Computes scores [step][row tile][unit][16 rows][16 tokens] of queries q ([16 *
  // n_row_tiles][dim] BF16) and units k (two per step, each [dim / 2][16 tokens][2] BF16), with
  // accumulators that start at offsets ([32][16]).
  static void score_steps(const uint16_t* q, int dim, int n_row_tiles, const std::byte* const* k,
                          int n_steps, const float* offsets, float* to) {
    for (; n_steps >= 2; n_steps -= 2, k += 4, to += 2 * kStepFloats) {
      for (int r = 0; r < 16 * n_row_tiles; r += 4) score_block<4, 4>(q, dim, k, r, offsets, to);
    }
    if (n_steps == 0) return;
    for (int r = 0; r < 16 * n_row_tiles; r += 8) score_block<8, 2>(q, dim, k, r, offsets, to);
  }

  // out ([16 * n_row_tiles][dim]) += weights ([step][2 row tiles][16 rows][16 pairs of tokens]
  // BF16) times values ([step][dim / 16][16 pairs of tokens][16 features] BF16).
  static void add_values(const std::byte* weights, const std::byte* values, int n_steps, int dim,
                         int n_row_tiles, float* out) {
    for (int d = 0; d < dim;) {
      const int n = dim - d >= 32 ? 2 : 1;
      for (int r = 0; r < 16 * n_row_tiles; r += 8) {
        if (n == 2) {
          value_block<8, 2>(weights, values, n_steps, dim, r, d, out);
        } else {
          value_block<8, 1>(weights, values, n_steps, dim, r, d, out);
        }
      }
      d += 16 * n;
    }
  }

 private:
  // Rows r .. r + NR - 1, which are in one row tile, with NU units.
  template <int NR, int NU>
  static void score_block(const uint16_t* q, int dim, const std::byte* const* k, int r,
                          const float* offsets, float* to) {
    __m512 acc[NR][NU];
    for (int i = 0; i < NR; ++i) {
      for (int u = 0; u < NU; ++u) acc[i][u] = _mm512_load_ps(offsets + (r + i) * 16);
    }
    q += static_cast<int64_t>(r) * dim;
    for (int d = 0; d < dim; d += 2) {
      __m512bh keys[NU];
      for (int u = 0; u < NU; ++u) keys[u] = pairs_at(k[u] + d * 32);
      for (int i = 0; i < NR; ++i) {
        const __m512bh query = pair_of(q + i * dim + d);
        for (int u = 0; u < NU; ++u) acc[i][u] = _mm512_dpbf16_ps(acc[i][u], keys[u], query);
      }
    }
    for (int u = 0; u < NU; ++u) {
      float* at = row_scores(to + u / 2 * kStepFloats, r) + u % 2 * kTileFloats;
      for (int i = 0; i < NR; ++i) _mm512_store_ps(at + i * 16, acc[i][u]);
    }
  }

  // Rows r .. r + NR - 1, which are in one row tile, with NJ vectors of features from d on.
  template <int NR, int NJ>
  static void value_block(const std::byte* weights, const std::byte* values, int n_steps, int dim,
                          int r, int d, float* out) {
    __m512 acc[NR][NJ];
    out += static_cast<int64_t>(r) * dim + d;
    for (int i = 0; i < NR; ++i) {
      for (int j = 0; j < NJ; ++j) acc[i][j] = _mm512_load_ps(out + i * dim + 16 * j);
    }
    weights += r * 64;
    values += d / 16 * kTileBytes;
    for (int step = 0; step < n_steps; ++step) {
      for (int pair = 0; pair < 16; ++pair) {
        __m512bh v[NJ];
        for (int j = 0; j < NJ; ++j) v[j] = pairs_at(values + j * kTileBytes + pair * 64);
        for (int i = 0; i < NR; ++i) {
          const __m512bh weight = pair_of(weights + i * 64 + pair * 4);
          for (int j = 0; j < NJ; ++j) acc[i][j] = _mm512_dpbf16_ps(acc[i][j], v[j], weight);
        }
      }
      weights += 2 * kTileBytes;
      values += static_cast<int64_t>(dim / 16) * kTileBytes;
    }
    for (int i = 0; i < NR; ++i) {
      for (int j = 0; j < NJ; ++j) _mm512_store_ps(out + i * dim + 16 * j, acc[i][j]);
    }
  }
};

// Least number of new tokens at which rounding to BF16 is used. With fewer (drafts, short prompts),
// results are those of decoding token by token.
constexpr int kMinTokens = 64;

template <KvFormat K>
void attend_pairs(const AttentionTile& tile, const AttentionState& state) {
  const bool many = tile.n_new >= kMinTokens && tile.n_heads == 1;
  if (!many || tile.has_terms || !tile.layout->has_equal_values() || tile.exact_rows)
    return attend<K>(tile, state);
  attend_flash<PairUnits, K>(tile, state);
}

}  // namespace

constinit const AttentionKernels kAvx512Bf16AttentionKernels = {
    {attend<KvFormat::kF32>, attend_pairs<KvFormat::kF16>, attend_pairs<KvFormat::kBF16>,
     attend_pairs<KvFormat::kI8>, attend_pairs<KvFormat::kI4>},
    merge_states,
    scale_row,
    {store_token<KvFormat::kF32>, store_token<KvFormat::kF16>, store_token<KvFormat::kBF16>,
     store_token<KvFormat::kI8>, store_narrow},
    {score_index<KvFormat::kF32>, score_index<KvFormat::kF16>, score_index<KvFormat::kBF16>,
     score_index<KvFormat::kI8>},
    rotate_row,
    widen_unit};

}  // namespace penstock
