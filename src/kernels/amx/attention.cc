// Attention on matrix units: 32 queries against 256 tokens at a time, BF16 operands, F32 sums. F32 caches,
// few queries and batch-invariant runs take the vector passes of the generic kernel.
#include <algorithm>
#include <cstring>

#include "kernels/attention_kernels.h"

#include "kernels/avx512/simd.h"

#include "kernels/generic/attention.inl"

namespace penstock {
namespace {

#include "kernels/amx/tiles.h"

#include "kernels/amx/attention_rows.inl"

constexpr int kSpan = 256;  // tokens
constexpr int kSpanUnits = kSpan / kUnitTokens;
constexpr int kSubRows = 32;
constexpr int kScoreStride = kSpan + 16;  // floats; no power of two
constexpr int kTileBytes = 1024;
constexpr int kMinRows = 9;  // with fewer, decoding is bound by memory and the vector passes stream better
constexpr float kLog2e = 1.44269504f, kLn2 = 0.69314718f;

// A tile's memory: all parts 64-byte aligned.
struct Scratch {
  uint16_t* q;    // [kMaxTileRows][dim]
  std::byte* k;   // [kSpanUnits][dim / 32] tiles: 16 feature pairs of 16 tokens
  std::byte* v;   // [kSpan / 32][padded_dim / 16] tiles: 16 token pairs of 16 features
  float* scores;  // [32][kScoreStride]
  std::byte* p;   // [kSpan / 32][32 rows][32 tokens]
  int dim;        // head size rounded up to 32

  explicit Scratch(const AttentionTile& tile) {
    dim = (tile.layout->padded_dim + 31) / 32 * 32;
    float* at = tile.scratch;
    scores = at;
    at += kSubRows * kScoreStride;
    p = reinterpret_cast<std::byte*>(at);
    at += kSubRows * kSpan / 2;
    q = reinterpret_cast<uint16_t*>(at);
    at += kMaxTileRows / 2 * dim;
    k = reinterpret_cast<std::byte*>(at);
    at += kSpan / 2 * dim;
    v = reinterpret_cast<std::byte*>(at);
  }
};

struct Span {
  int begin, end;                      // tokens; end is one past the last that some row sees
  int n_steps;                         // of 32 tokens
  const std::byte* units[kSpanUnits];  // null where no row sees a token
  const std::byte* k[kSpanUnits];      // BF16 tiles of every unit of the steps
  const std::byte* next[kSpanUnits];   // the same units of the next span, or null: to be prefetched
};

// Two vectors of 16 as 16 pairs in BF16.
inline __m512i interleave(__m512 a, __m512 b) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
}

template <KvFormat K>
inline void convert_k(const KvUnitLayout& layout, const std::byte* unit, int dim, std::byte* to) {
  const F scales =
      K == KvFormat::kI8 ? Simd::load(reinterpret_cast<const float*>(unit + layout.k_scales)) : Simd::zero();
  for (int d = 0; d < layout.padded_dim; d += 2, to += 64) {
    if constexpr (K == KvFormat::kBF16) {
      _mm512_store_si512(to, _mm512_loadu_si512(unit + d * 32));
    } else {
      F a, b;
      load_k_pair<K>(unit, d, a, b);
      if constexpr (K == KvFormat::kI8) {
        a = Simd::mul(a, scales);
        b = Simd::mul(b, scales);
      }
      _mm512_store_si512(to, interleave(a, b));
    }
  }
  for (int d = layout.padded_dim; d < dim; d += 2, to += 64) _mm512_store_si512(to, _mm512_setzero_si512());
}

// V of a unit into rows 8 * (u % 2) .. + 7 of the tiles of its step. Tokens from n_valid on become zeros.
template <KvFormat K>
inline void convert_v(const KvUnitLayout& layout, const std::byte* unit, int u, int n_valid, std::byte* v) {
  const int dim = layout.padded_dim;
  const std::byte* values = unit + layout.v_offset;
  const auto* scales = reinterpret_cast<const float*>(unit + layout.v_scales);
  std::byte* to = v + static_cast<int64_t>(u / 2) * (dim / 16) * kTileBytes + u % 2 * (kTileBytes / 2);
  for (int t = 0; t < kUnitTokens; t += 2, to += 64) {
    const __mmask32 keep = n_valid >= t + 2 ? 0xffffffffu : n_valid == t + 1 ? 0x55555555u : 0u;
    for (int d = 0; d < dim; d += 16) {
      __m512i pairs;
      if constexpr (K == KvFormat::kBF16) {
        pairs = _mm512_loadu_si512(values + (t * dim + 2 * d) * 2);
      } else {
        F a, b;
        load_v_pair<K>(values, t, d, dim, a, b);
        if constexpr (K == KvFormat::kI8) {
          a = Simd::mul(a, Simd::set1(scales[t]));
          b = Simd::mul(b, Simd::set1(scales[t + 1]));
        }
        pairs = interleave(a, b);
      }
      _mm512_store_si512(to + d / 16 * kTileBytes, _mm512_maskz_mov_epi16(keep, pairs));
    }
  }
}

template <KvFormat K>
void load_span(const AttentionTile& tile, const Scratch& scratch, Span& span) {
  const KvUnitLayout& layout = *tile.layout;
  const int64_t k_bytes = static_cast<int64_t>(scratch.dim) * kUnitTokens * 2;
  for (int u = 0; u < 2 * span.n_steps; ++u) {
    std::byte* k = scratch.k + u * k_bytes;
    span.k[u] = k;
    if (span.next[u] != nullptr) {
      for (int64_t i = 0; i < layout.bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(span.next[u] + i), _MM_HINT_T1);
      }
    }
    if (span.units[u] == nullptr) {  // all masked: any finite values do
      for (int64_t i = 0; i < k_bytes; i += 64) _mm512_store_si512(k + i, _mm512_setzero_si512());
      std::byte* v =
          scratch.v + static_cast<int64_t>(u / 2) * (layout.padded_dim / 16) * kTileBytes + u % 2 * 512;
      for (int d = 0; d < layout.padded_dim / 16; ++d) {
        for (int i = 0; i < 8; ++i) _mm512_store_si512(v + d * kTileBytes + i * 64, _mm512_setzero_si512());
      }
      continue;
    }
    if (K == KvFormat::kBF16 && scratch.dim == layout.padded_dim) {
      span.k[u] = span.units[u];
    } else {
      convert_k<K>(layout, span.units[u], scratch.dim, k);
    }
    convert_v<K>(layout, span.units[u], u, span.end - span.begin - u * kUnitTokens, scratch.v);
  }
}

// scores[32][32 * n_steps] = Q K^T
void score_span(const Scratch& scratch, const Span& span, const uint16_t* q, int n_row_tiles) {
  const ptrdiff_t q_stride = scratch.dim * 2;
  for (int step = 0; step < span.n_steps; ++step) {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    const std::byte *k0 = span.k[2 * step], *k1 = span.k[2 * step + 1];
    for (int d = 0; d < scratch.dim; d += 32, k0 += kTileBytes, k1 += kTileBytes) {
      tile_load<4>(q + d, q_stride);
      tile_load<6>(k0, 64);
      tile_dot_bf16<0, 4, 6>();
      tile_load<7>(k1, 64);
      tile_dot_bf16<1, 4, 7>();
      if (n_row_tiles == 1) continue;
      tile_load<5>(q + 16 * scratch.dim + d, q_stride);
      tile_dot_bf16<2, 5, 6>();
      tile_dot_bf16<3, 5, 7>();
    }
    float* to = scratch.scores + step * 32;
    tile_store<0>(to, kScoreStride * 4);
    tile_store<1>(to + 16, kScoreStride * 4);
    if (n_row_tiles == 1) continue;
    tile_store<2>(to + 16 * kScoreStride, kScoreStride * 4);
    tile_store<3>(to + 16 * kScoreStride + 16, kScoreStride * 4);
  }
}

// 2^x for x <= 0, relative error below 2e-4: less than the rounding to BF16 that follows.
inline __m512 exp2_negative(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // x - floor(x)
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(7.8024523e-2f), f, _mm512_set1_ps(2.2606716e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9583356e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.9992522e-1f));
  return _mm512_scalef_ps(p, x);
}

// Applies the soft cap and the mask to one row of scores.
void mask_row(const AttentionTile& tile, const Span& span, const AttentionRow& row, float* scores) {
  const __m512 lowest = _mm512_set1_ps(kLowest);
  for (int u = 0; u < 2 * span.n_steps; ++u) {
    __m512 s = _mm512_load_ps(scores + u * 16);
    if (tile.softcap > 0.0f) s = _mm512_mul_ps(tanh(s), _mm512_set1_ps(tile.softcap * kLog2e));
    const uint32_t lanes = visible_lanes(row, span.begin + u * kUnitTokens);
    _mm512_store_ps(scores + u * 16, _mm512_mask_mov_ps(lowest, static_cast<__mmask16>(lanes), s));
  }
}

inline float highest(const float* scores, int n_steps) {
  __m512 a = _mm512_load_ps(scores), b = _mm512_load_ps(scores + 16);
  for (int step = 1; step < n_steps; ++step) {
    a = _mm512_max_ps(a, _mm512_load_ps(scores + step * 32));
    b = _mm512_max_ps(b, _mm512_load_ps(scores + step * 32 + 16));
  }
  return _mm512_reduce_max_ps(_mm512_max_ps(a, b));
}

// Scores of two rows, in units of log 2, to weights in BF16; adds the weights to sum[0] and sum[1].
inline void weigh_rows(const float* scores, const float* max, int n_steps, std::byte* p, float* sum) {
  // A row that has seen nothing yet has the lowest maximum; its masked scores must still give zeros.
  const __m512 m0 = _mm512_set1_ps(max[0] > 0.1f * kLowest ? max[0] : 0.1f * kLowest);
  const __m512 m1 = _mm512_set1_ps(max[1] > 0.1f * kLowest ? max[1] : 0.1f * kLowest);
  __m512 s0 = _mm512_setzero_ps(), s1 = s0;
  for (int step = 0; step < n_steps; ++step, scores += 32, p += kSubRows * 64) {
    const __m512 a = exp2_negative(_mm512_sub_ps(_mm512_load_ps(scores), m0));
    const __m512 b = exp2_negative(_mm512_sub_ps(_mm512_load_ps(scores + 16), m0));
    const __m512 c = exp2_negative(_mm512_sub_ps(_mm512_load_ps(scores + kScoreStride), m1));
    const __m512 d = exp2_negative(_mm512_sub_ps(_mm512_load_ps(scores + kScoreStride + 16), m1));
    s0 = _mm512_add_ps(s0, _mm512_add_ps(a, b));
    s1 = _mm512_add_ps(s1, _mm512_add_ps(c, d));
    _mm512_store_si512(p, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
    _mm512_store_si512(p + 64, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(d, c)));
  }
  sum[0] += _mm512_reduce_add_ps(s0);
  sum[1] += _mm512_reduce_add_ps(s1);
}

// Weights and rescaled sums of the rows r .. r + 31. Rows that no query uses have zero queries and see
// everything.
void softmax_span(const AttentionTile& tile, const Scratch& scratch, const Span& span, int r,
                  const AttentionState& state) {
  const int dim = tile.layout->padded_dim, n = tile.n_rows - r < kSubRows ? tile.n_rows - r : kSubRows;
  const int n_used = n > 16 ? kSubRows : 16;
  alignas(64) float found[kSubRows], factors[kSubRows];
  for (int i = 0; i < n_used; ++i) {
    float* scores = scratch.scores + i * kScoreStride;
    if (i < n) {
      const AttentionRow& row = tile.rows[r + i];
      const int end = span.begin + 32 * span.n_steps;
      if (row.first > span.begin || row.end < end || row.tree_mask != 0 || tile.softcap > 0.0f) {
        mask_row(tile, span, row, scores);
      }
    }
    found[i] = highest(scores, span.n_steps);
  }
  float* max = state.max + r;
  for (int i = 0; i < n_used; i += 16) {
    const __m512 before = _mm512_loadu_ps(max + i), after = _mm512_max_ps(before, _mm512_load_ps(found + i));
    const __m512 factor = exp2_negative(_mm512_sub_ps(before, after));
    // Exactly 1 where the maximum stays.
    _mm512_store_ps(factors + i, _mm512_mask_mov_ps(_mm512_set1_ps(1.0f),
                                                    _mm512_cmp_ps_mask(before, after, _CMP_NEQ_OQ), factor));
    _mm512_storeu_ps(max + i, after);
    _mm512_storeu_ps(state.sum + r + i,
                     _mm512_mul_ps(_mm512_loadu_ps(state.sum + r + i), _mm512_load_ps(factors + i)));
  }
  for (int i = 0; i < n_used; i += 2) {
    weigh_rows(scratch.scores + i * kScoreStride, max + i, span.n_steps, scratch.p + i * 64,
               state.sum + r + i);
  }
  for (int i = 0; i < n; ++i) {
    if (factors[i] == 1.0f) continue;
    float* out = state.out + static_cast<int64_t>(r + i) * dim;
    const __m512 f = _mm512_set1_ps(factors[i]);
    for (int d = 0; d < dim; d += 16) _mm512_store_ps(out + d, _mm512_mul_ps(_mm512_load_ps(out + d), f));
  }
}

// out[32][padded_dim] += P V
void add_span_values(const Scratch& scratch, const Span& span, int dim, float* out, int n_row_tiles) {
  const ptrdiff_t stride = dim * 4;
  const int64_t step_bytes = static_cast<int64_t>(dim / 16) * kTileBytes;
  float* low = out + static_cast<int64_t>(16) * dim;
  for (int d = 0; d < dim; d += 32) {
    const bool both = d + 16 < dim;  // two column tiles
    const std::byte *v = scratch.v + d / 16 * kTileBytes, *p = scratch.p;
    tile_load<0>(out + d, stride);
    if (both) tile_load<1>(out + d + 16, stride);
    if (n_row_tiles == 2) {
      tile_load<2>(low + d, stride);
      if (both) tile_load<3>(low + d + 16, stride);
    }
    for (int step = 0; step < span.n_steps; ++step, v += step_bytes, p += kSubRows * 64) {
      tile_load<4>(p, 64);
      tile_load<6>(v, 64);
      tile_dot_bf16<0, 4, 6>();
      if (both) {
        tile_load<7>(v + kTileBytes, 64);
        tile_dot_bf16<1, 4, 7>();
      }
      if (n_row_tiles == 1) continue;
      tile_load<5>(p + 16 * 64, 64);
      tile_dot_bf16<2, 5, 6>();
      if (both) tile_dot_bf16<3, 5, 7>();
    }
    tile_store<0>(out + d, stride);
    if (both) tile_store<1>(out + d + 16, stride);
    if (n_row_tiles == 1) continue;
    tile_store<2>(low + d, stride);
    if (both) tile_store<3>(low + d + 16, stride);
  }
}

inline bool span_unseen(const AttentionTile& tile, const Span& span, int r) {
  for (int i = r; i < r + kSubRows && i < tile.n_rows; ++i) {
    if (tile.rows[i].end > span.begin && tile.rows[i].first < span.begin + kSpan) return false;
  }
  return true;
}

// Queries to BF16, scaled; sums to zero. Sets the range of tokens that some row sees.
void begin_rows(const AttentionTile& tile, const Scratch& scratch, const AttentionState& state, int& first,
                int& end) {
  const int dim = tile.layout->padded_dim, n_rows = state_rows(tile.n_rows);
  const __m512 scale = _mm512_set1_ps(tile.softcap > 0.0f ? tile.scale / tile.softcap : tile.scale * kLog2e);
  for (int r = 0; r < n_rows; ++r) {
    for (int d = 0; d < scratch.dim; d += 16) {
      const int left = tile.layout->head_dim - d;
      __m512 x = _mm512_setzero_ps();
      if (r < tile.n_rows && left > 0)
        x = left >= 16 ? Simd::load(tile.rows[r].q + d) : Simd::load_n(tile.rows[r].q + d, left);
      _mm256_store_si256(reinterpret_cast<__m256i*>(scratch.q + r * scratch.dim + d),
                         reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_mul_ps(x, scale))));
    }
    for (int d = 0; d < dim; d += 16) _mm512_store_ps(state.out + r * dim + d, _mm512_setzero_ps());
    state.max[r] = kLowest;
    state.sum[r] = 0.0f;
    if (r >= tile.n_rows) continue;
    first = tile.rows[r].first < first ? tile.rows[r].first : first;
    end = tile.rows[r].end > end ? tile.rows[r].end : end;
  }
  first = first > tile.begin ? first : tile.begin;
  end = end < tile.end ? end : tile.end;
}

template <KvFormat K>
void attend_tiles(const AttentionTile& tile, const AttentionState& state) {
  if (tile.exact_rows || tile.n_rows < kMinRows) {
    if constexpr (K == KvFormat::kBF16 || K == KvFormat::kI8) return attend_row_passes<K>(tile, state);
    return attend<K>(tile, state);
  }
  const Scratch scratch(tile);
  TileConfig config;
  for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
  const TileScope scope(config);
  int first = tile.end, end = tile.begin;
  begin_rows(tile, scratch, state, first, end);
  Span span = {};
  for (span.begin = first / 32 * 32; span.begin < end; span.begin += kSpan) {
    span.end = end < span.begin + kSpan ? end : span.begin + kSpan;
    span.n_steps = (span.end - span.begin + 31) / 32;
    for (int u = 0; u < 2 * span.n_steps; ++u) {
      const int token = span.begin + u * kUnitTokens;
      span.units[u] = token < span.end && token + kUnitTokens > first ? unit_at(tile, token) : nullptr;
      span.next[u] = token + kSpan < end ? unit_at(tile, token + kSpan) : nullptr;
    }
    load_span<K>(tile, scratch, span);
    for (int r = 0; r < tile.n_rows; r += kSubRows) {
      if (span_unseen(tile, span, r)) continue;
      const int n_row_tiles = tile.n_rows - r > 16 ? 2 : 1;
      score_span(scratch, span, scratch.q + static_cast<int64_t>(r) * scratch.dim, n_row_tiles);
      softmax_span(tile, scratch, span, r, state);
      add_span_values(scratch, span, tile.layout->padded_dim,
                      state.out + static_cast<int64_t>(r) * tile.layout->padded_dim, n_row_tiles);
    }
  }
  for (int r = 0; r < tile.n_rows; ++r) state.max[r] *= kLn2;
}

}  // namespace

constinit const AttentionKernels kAmxAttentionKernels = {
    {attend<KvFormat::kF32>, attend_tiles<KvFormat::kF16>, attend_tiles<KvFormat::kBF16>,
     attend_tiles<KvFormat::kI8>},
    merge_states,
    scale_row,
    {store_token<KvFormat::kF32>, store_token<KvFormat::kF16>, store_token<KvFormat::kBF16>,
     store_token<KvFormat::kI8>}};

}  // namespace penstock
