// Flash attention of many rows: 32 queries by up to 256 tokens, with BF16 operands and F32 sums.
// Include inside an anonymous namespace, after generic/attention.inl.
//
// The products are a class (Units):
//   Scope          an object that lives while a tile is computed
//   score_steps()  multiplies 32 queries with the keys of steps of 32 tokens
//   add_values()   multiplies weights with the values of steps
// PairUnits (attention.cc) documents the layouts.
//
// Weights are powers of two relative to a reference, which need not be the row's largest score:
// BF16 has the range of F32, so any score near the largest one serves, and no pass searches for the
// largest. The reference is the largest score of the first 32 tokens that the row sees; the
// accumulators of scores start at an offset made of it. If weights of a span get too large, the
// span is computed again relative to its largest score.
//
// Scores are in units of 2^-8 of log 2, relative to 127 below the reference: rounded to integers,
// they are the exponent and 8 bits of a linear fraction of the weight, which a table maps to 7 bits
// of mantissa. With the rounding to BF16 the error is at most 0.27 %. Weights below 2^-127 are
// exactly zero, like masked ones.

// 2^x for x <= 0, relative error below 1.5e-7.
inline __m512 exp2_exact(__m512 x) {
  constexpr float kC[] = {9.999999251e-01f, 6.931530732e-01f, 2.401536171e-01f,
                          5.582631799e-02f, 8.989340163e-03f, 1.877576645e-03f};
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // x - floor(x)
  return _mm512_scalef_ps(polynomial(kC, f), x);
}

constexpr int kSpan = 256;  // tokens
constexpr int kSpanUnits = kSpan / kUnitTokens;
constexpr int kSpanSteps = kSpan / 32;
constexpr int kSubRows = 32;
constexpr int kTileBytes = 1024, kTileFloats = 256;
// scores of a step: [row tile][unit][16 rows][16 tokens]
constexpr int kStepFloats = 4 * kTileFloats;
constexpr float kLog2e = 1.44269504f, kLn2 = 0.69314718f;
constexpr float kScoreUnits = 256.0f;  // units per log 2
// score of weight 1; one half rounds the shift
constexpr float kWeightBias = 127 * kScoreUnits + 0.5f;

// Scratch memory of a tile. All parts are 64-byte aligned.
struct Scratch {
  uint16_t* q;     // [kMaxTileRows][dim]
  std::byte* k;    // [kSpanUnits][dim / 32] tiles: 16 feature pairs of 16 tokens
  std::byte* v;    // [kSpanSteps][padded_dim / 16] tiles: 16 token pairs of 16 features
  float* scores;   // [2 steps][kStepFloats]
  std::byte* p;    // [kSpanSteps][2 row tiles] tiles: 16 rows of 32 tokens
  float* offsets;  // [kMaxTileRows][16]: start of the accumulators of a row's scores
  float* sums;     // [kMaxTileRows][16] of the rows' weights
  float* added;    // [kSubRows][16] of the current span
  float* zeros;    // [kSubRows][16]
  int dim;         // head size rounded up to 32

  explicit Scratch(const AttentionTile& tile) {
    dim = (tile.layout->padded_dim + 31) / 32 * 32;
    float* at = tile.scratch;
    const auto take = [&](int64_t n_floats) {
      float* taken = at;
      at += n_floats;
      return taken;
    };
    scores = take(2 * kStepFloats);
    p = reinterpret_cast<std::byte*>(take(kSubRows * kSpan / 2));
    offsets = take(kMaxTileRows * 16);
    sums = take(kMaxTileRows * 16);
    added = take(kSubRows * 16);
    zeros = take(kSubRows * 16);
    q = reinterpret_cast<uint16_t*>(take(kMaxTileRows / 2 * dim));
    k = reinterpret_cast<std::byte*>(take(kSpan / 2 * dim));
    v = reinterpret_cast<std::byte*>(take(kSpan / 2 * dim));
  }
};

struct Span {
  int begin, end;                      // tokens; end: after the last one that some row sees
  int n_steps;                         // of 32 tokens
  const std::byte* units[kSpanUnits];  // null if no row sees any of its tokens
  const std::byte* k[kSpanUnits];      // BF16 tiles of all units of the steps
  const std::byte* next[kSpanUnits];   // the same units of the next span, to prefetch, or null
};

// Up to 32 rows of a tile and their visible tokens. Padding rows have zero queries, and zero
// weights.
struct Sub {
  int row, n_rows, n_row_tiles;
  int first, end;              // tokens that some row sees
  int whole_first, whole_end;  // tokens that every row sees
};

// Converts two vectors of 16 to 16 pairs of BF16.
inline __m512i interleave(__m512 a, __m512 b) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
}

template <KvFormat K>
inline void convert_k(const KvUnitLayout& layout, const std::byte* unit, int dim, std::byte* to) {
  const F own = kScaled<K> ? Simd::load(reinterpret_cast<const float*>(unit + layout.k_scales))
                           : Simd::zero();
  F scales = own;
  for (int d = 0; d < layout.padded_dim; d += 2, to += 64) {
    if (K == KvFormat::kI4 && d % kFactorFeatures == 0)
      scales = Simd::mul(own, Simd::load_u8(key_factors(layout, unit, d / kFactorFeatures)));
    if constexpr (K == KvFormat::kBF16) {
      _mm512_store_si512(to, _mm512_loadu_si512(unit + d * 32));
    } else {
      F a, b;
      load_k_pair<K>(unit, d, a, b);
      if constexpr (kScaled<K>) {
        a = Simd::mul(a, scales);
        b = Simd::mul(b, scales);
      }
      _mm512_store_si512(to, interleave(a, b));
    }
  }
  for (int d = layout.padded_dim; d < dim; d += 2, to += 64)
    _mm512_store_si512(to, _mm512_setzero_si512());
}

// Returns the row of the pair of tokens t, t + 1 of unit u in the tiles of its step: weights are
// packed in fours that alternate between the two units.
inline int pair_row(int u, int t) { return t / 4 * 4 + u % 2 * 2 + t % 4 / 2; }

// Returns what codes of token t are multiplied by from feature d on.
template <KvFormat K>
[[gnu::always_inline]] inline float value_scale(const KvUnitLayout& layout, const std::byte* unit,
                                                int t, int d) {
  const float scale = reinterpret_cast<const float*>(unit + layout.v_scales)[t];
  if constexpr (K != KvFormat::kI4) return scale;
  const std::byte factor = unit[layout.v_factors + d / kFactorFeatures * kUnitTokens + t];
  return scale * static_cast<float>(std::to_integer<int>(factor));
}

// Converts V of a unit to the tiles of its step. Tokens from n_valid on become zeros.
template <KvFormat K>
inline void convert_v(const KvUnitLayout& layout, const std::byte* unit, int u, int n_valid,
                      std::byte* v) {
  const int dim = layout.padded_dim;
  const std::byte* values = unit + layout.v_offset;
  v += static_cast<int64_t>(u / 2) * (dim / 16) * kTileBytes;
  for (int t = 0; t < kUnitTokens; t += 2) {
    std::byte* to = v + pair_row(u, t) * 64;
    const __mmask32 keep = n_valid >= t + 2 ? 0xffffffffu : n_valid == t + 1 ? 0x55555555u : 0u;
    for (int d = 0; d < dim; d += 16, to += kTileBytes) {
      __m512i pairs;
      if constexpr (K == KvFormat::kBF16) {
        pairs = _mm512_loadu_si512(values + (t * dim + 2 * d) * 2);
      } else {
        F a, b;
        load_v_pair<K>(values, t, d, dim, a, b);
        if constexpr (kScaled<K>) {
          a = Simd::mul(a, Simd::set1(value_scale<K>(layout, unit, t, d)));
          b = Simd::mul(b, Simd::set1(value_scale<K>(layout, unit, t + 1, d)));
        }
        pairs = interleave(a, b);
      }
      _mm512_store_si512(to, _mm512_maskz_mov_epi16(keep, pairs));
    }
  }
}

// Zeroes the tiles of a unit that no row sees.
inline void clear_unit(int padded_dim, int64_t k_bytes, int u, std::byte* k, std::byte* v) {
  for (int64_t i = 0; i < k_bytes; i += 64) _mm512_store_si512(k + i, _mm512_setzero_si512());
  v += static_cast<int64_t>(u / 2) * (padded_dim / 16) * kTileBytes;
  for (int t = 0; t < kUnitTokens; t += 2) {
    std::byte* to = v + pair_row(u, t) * 64;
    for (int d = 0; d < padded_dim; d += 16, to += kTileBytes)
      _mm512_store_si512(to, _mm512_setzero_si512());
  }
}

template <KvFormat K>
void load_span(const AttentionTile& tile, const Scratch& scratch, Span& span) {
  const KvUnitLayout& layout = *tile.layout;
  const int64_t k_bytes = static_cast<int64_t>(scratch.dim) * kUnitTokens * 2;
  for (int u = 0; u < 2 * span.n_steps; ++u) {
    std::byte* k = scratch.k + u * k_bytes;
    span.k[u] = k;
    if (span.units[u] == nullptr) {
      clear_unit(layout.padded_dim, k_bytes, u, k, scratch.v);
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

// Computes the scores of n steps from `step` on.
template <class Units>
inline void score_steps(const Scratch& scratch, const Span& span, const Sub& sub, int step, int n,
                        const float* offsets) {
  const uint16_t* q = scratch.q + static_cast<int64_t>(sub.row) * scratch.dim;
  Units::score_steps(q, scratch.dim, sub.n_row_tiles, span.k + 2 * step, n, offsets,
                     scratch.scores);
}

// Location of row i's scores of a step's first unit; those of the second are kTileFloats further.
inline float* row_scores(float* scores, int i) {
  return scores + i / 16 * 2 * kTileFloats + i % 16 * 16;
}

// Applies softcap and mask to the scores of a step. With a softcap, scores have no offset yet.
void mask_step(const AttentionTile& tile, const Sub& sub, int begin, const float* offsets,
               float* scores) {
  const __m512 lowest = _mm512_set1_ps(kLowest);
  for (int i = 0; i < sub.n_rows; ++i) {
    for (int u = 0; u < 2; ++u) {
      float* at = row_scores(scores, i) + u * kTileFloats;
      const uint32_t lanes = visible_lanes(tile.rows[sub.row + i], begin + u * kUnitTokens);
      __m512 s = _mm512_load_ps(at);
      if (tile.softcap > 0.0f) {
        s = _mm512_fmadd_ps(tanh(s), _mm512_set1_ps(tile.softcap * kLog2e * kScoreUnits),
                            _mm512_load_ps(offsets + i * 16));
      }
      _mm512_store_ps(at, _mm512_mask_mov_ps(lowest, static_cast<__mmask16>(lanes), s));
    }
  }
}

inline bool is_whole(const AttentionTile& tile, const Sub& sub, int begin) {
  return begin >= sub.whole_first && begin + 32 <= sub.whole_end && !(tile.softcap > 0.0f);
}

// Table of the 7 mantissa bits of 2^(i / 128).
struct alignas(64) MantissaTable {
  uint8_t mantissas[128];

  constexpr MantissaTable() : mantissas() {
    // 2^(1 / 128); errors of 128 products stay below rounding.
    double power = 1.0;
    for (uint8_t& m : mantissas) {
      m = static_cast<uint8_t>((power - 1.0) * 128.0 + 0.5);
      power *= 1.005429900903119;
    }
  }
};
constexpr MantissaTable kMantissas;

struct Weigher {
  __m512i low = _mm512_load_si512(kMantissas.mantissas),
          high = _mm512_load_si512(kMantissas.mantissas + 64);
  __m512i mantissa = _mm512_set1_epi16(0x7f), ones = _mm512_set1_epi16(0x3f80);

  // Converts scores of 16 tokens in each of two units to BF16 weights, in groups of four that
  // alternate between the units.
  [[gnu::always_inline]] __m512i operator()(const float* scores) const {
    const __m512i whole =
        _mm512_packus_epi32(_mm512_cvtps_epi32(_mm512_load_ps(scores)),
                            _mm512_cvtps_epi32(_mm512_load_ps(scores + kTileFloats)));
    const __m512i linear = _mm512_srli_epi16(whole, 1);
    return _mm512_ternarylogic_epi32(mantissa, _mm512_permutex2var_epi8(low, linear, high), linear,
                                     0xca);
  }
  [[gnu::always_inline]] __m512 add(__m512 sum, __m512i weights) const {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(weights),
                            reinterpret_cast<__m512bh>(ones));
  }
};

// Converts scores of N steps to weights at p; adds them to `sums`, or overwrites it.
template <int N>
void weigh_steps(const float* scores, int n_row_tiles, bool overwrite, std::byte* p, float* sums) {
  const Weigher weigh;
  for (int tile = 0; tile < n_row_tiles; ++tile) {
#pragma GCC unroll 8
    for (int i = 0; i < 16; ++i, sums += 16) {
      __m512 sum = overwrite ? _mm512_setzero_ps() : _mm512_load_ps(sums);
      for (int step = 0; step < N; ++step) {
        const __m512i weights =
            weigh(scores + step * kStepFloats + tile * 2 * kTileFloats + i * 16);
        _mm512_store_si512(p + step * 2 * kTileBytes + tile * kTileBytes + i * 64, weights);
        sum = weigh.add(sum, weights);
      }
      _mm512_store_ps(sums, sum);
    }
  }
}

// Computes weights of steps [step, end) of a span, and their sums in scratch.added.
template <class Units>
void weigh_span(const AttentionTile& tile, const Scratch& scratch, const Span& span, const Sub& sub,
                int step, int end) {
  const float* offsets = scratch.offsets + sub.row * 16;
  const float* initial = tile.softcap > 0.0f ? scratch.zeros : offsets;
  bool overwrite = true;
  for (int n = 0; step < end; step += n) {
    n = end - step < 2 ? 1 : 2;
    score_steps<Units>(scratch, span, sub, step, n, initial);
    for (int i = 0; i < n; ++i) {
      const int begin = span.begin + (step + i) * 32;
      if (!is_whole(tile, sub, begin))
        mask_step(tile, sub, begin, offsets, scratch.scores + i * kStepFloats);
    }
    std::byte* p = scratch.p + step * 2 * kTileBytes;
    if (n == 2) {
      weigh_steps<2>(scratch.scores, sub.n_row_tiles, overwrite, p, scratch.added);
    } else {
      weigh_steps<1>(scratch.scores, sub.n_row_tiles, overwrite, p, scratch.added);
    }
    overwrite = false;
  }
}

// Returns the highest visible score of row i in a step, in units of log 2. Scores have no offset.
inline float highest_of_row(float* scores, int i) {
  const float* at = row_scores(scores, i);
  return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_load_ps(at), _mm512_load_ps(at + kTileFloats))) /
         kScoreUnits;
}

inline void set_reference(const Scratch& scratch, const AttentionState& state, int row,
                          float reference) {
  state.max[row] = reference;
  _mm512_store_ps(scratch.offsets + row * 16,
                  _mm512_set1_ps(kWeightBias - reference * kScoreUnits));
}

// Sets the references of rows that have none, at the first of steps [step, end) that they see.
template <class Units>
void find_references(const AttentionTile& tile, const Scratch& scratch, const Span& span,
                     const Sub& sub, int step, int end, const AttentionState& state) {
  const float* max = state.max + sub.row;
  const auto lacks = [&](int i) {
    const AttentionRow& row = tile.rows[sub.row + i];
    return max[i] == kLowest && row.end > span.begin && row.first < span.end;
  };
  for (int i = 0; i < sub.n_rows && step < end; ++i) {
    for (; lacks(i) && step < end; ++step) {  // scores of one step serve all rows
      score_steps<Units>(scratch, span, sub, step, 1, scratch.zeros);
      mask_step(tile, sub, span.begin + step * 32, scratch.zeros, scratch.scores);
      for (int j = i; j < sub.n_rows; ++j) {
        if (max[j] != kLowest) continue;
        const float highest = highest_of_row(scratch.scores, j);
        if (highest * kScoreUnits > 0.1f * kLowest)
          set_reference(scratch, state, sub.row + j, highest);
      }
    }
  }
}

// Raises each row's reference to the highest score that it has seen.
template <class Units>
void raise_references(const AttentionTile& tile, const Scratch& scratch, const Span& span,
                      const Sub& sub, int step, int end, const AttentionState& state) {
  float highest[kSubRows];
  std::copy_n(state.max + sub.row, sub.n_rows, highest);
  for (; step < end; ++step) {
    score_steps<Units>(scratch, span, sub, step, 1, scratch.zeros);
    mask_step(tile, sub, span.begin + step * 32, scratch.zeros, scratch.scores);
    for (int i = 0; i < sub.n_rows; ++i)
      highest[i] = std::max(highest[i], highest_of_row(scratch.scores, i));
  }
  const int dim = tile.layout->padded_dim;
  for (int i = 0; i < sub.n_rows; ++i) {
    const int row = sub.row + i;
    if (highest[i] == state.max[row]) continue;
    const __m512 factor = exp2_exact(_mm512_set1_ps(state.max[row] - highest[i]));
    set_reference(scratch, state, row, highest[i]);
    float *out = state.out + static_cast<int64_t>(row) * dim, *sum = scratch.sums + row * 16;
    for (int d = 0; d < dim; d += 16)
      _mm512_store_ps(out + d, _mm512_mul_ps(_mm512_load_ps(out + d), factor));
    _mm512_store_ps(sum, _mm512_mul_ps(_mm512_load_ps(sum), factor));
  }
}

// Whether some weights are so large, infinite or NaN that their sums, or their products with
// values, may overflow.
inline bool too_large(const Scratch& scratch, const Sub& sub) {
  // 2^64; bits of positive floats are ordered like their values
  constexpr uint32_t kLimit = (127 + 64) << 23;
  __m512i most = _mm512_setzero_si512();
  for (int i = 0; i < sub.n_row_tiles * 16; ++i)
    most = _mm512_max_epu32(most, _mm512_load_si512(scratch.added + i * 16));
  return _mm512_cmpgt_epu32_mask(most, _mm512_set1_epi32(kLimit)) != 0;
}

// Prefetches rows of memory, a part per step: the next tile's queries for loads, and this tile's
// results for stores.
class Fetcher {
 public:
  Fetcher(const SoonNeeded& rows, int64_t n_steps)
      : rows_(rows), per_step_((rows.bytes * rows.n_rows / 64 + n_steps) / n_steps * 64) {}

  template <bool Write>
  void step() {
    for (int64_t left = per_step_; left > 0 && row_ < rows_.n_rows; left -= 64) {
      const std::byte* at = rows_.begin + row_ * rows_.stride + in_row_;
      if constexpr (Write) {
        asm volatile("prefetchw (%0)" ::"r"(at));
      } else {
        asm volatile("prefetcht1 (%0)" ::"r"(at));
      }
      in_row_ += 64;
      if (in_row_ < rows_.bytes) continue;
      in_row_ = 0;
      ++row_;
    }
  }

 private:
  SoonNeeded rows_;
  int64_t per_step_, in_row_ = 0;
  int row_ = 0;
};

// Prefetches units [u, end) of the next span.
inline void fetch_units(const Span& span, int u, int end, int64_t bytes) {
  for (; u < end; ++u) {
    if (span.next[u] == nullptr) continue;
    for (int64_t i = 0; i < bytes; i += 64) asm volatile("prefetcht1 (%0)" ::"r"(span.next[u] + i));
  }
}

template <class Units>
void attend_span(const AttentionTile& tile, const Scratch& scratch, const Span& span,
                 const Sub& sub, const AttentionState& state) {
  const int first = std::max(sub.first, span.begin), last = std::min(sub.end, span.end);
  if (first >= last) return;
  const int step = (first - span.begin) / 32, end = (last - span.begin + 31) / 32;
  find_references<Units>(tile, scratch, span, sub, step, end, state);
  weigh_span<Units>(tile, scratch, span, sub, step, end);
  if (too_large(scratch, sub)) {
    raise_references<Units>(tile, scratch, span, sub, step, end, state);
    weigh_span<Units>(tile, scratch, span, sub, step, end);
  }
  float* sums = scratch.sums + sub.row * 16;
  for (int i = 0; i < sub.n_row_tiles * 16; ++i) {
    const __m512 added = _mm512_load_ps(scratch.added + i * 16);
    _mm512_store_ps(sums + i * 16, _mm512_add_ps(_mm512_load_ps(sums + i * 16), added));
  }
  const int dim = tile.layout->padded_dim;
  Units::add_values(scratch.p + step * 2 * kTileBytes,
                    scratch.v + int64_t{step} * (dim / 16) * kTileBytes, end - step, dim,
                    sub.n_row_tiles, state.out + static_cast<int64_t>(sub.row) * dim);
}

// Converts scaled queries to BF16, and zeroes the sums.
void begin_rows(const AttentionTile& tile, const Scratch& scratch, const AttentionState& state) {
  const int dim = tile.layout->padded_dim, n_rows = state_rows(tile.n_rows);
  const __m512 scale = _mm512_set1_ps(tile.softcap > 0.0f ? tile.scale / tile.softcap
                                                          : tile.scale * kLog2e * kScoreUnits);
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
    _mm512_store_ps(scratch.offsets + r * 16, _mm512_setzero_ps());
    _mm512_store_ps(scratch.sums + r * 16, _mm512_setzero_ps());
  }
  for (int i = 0; i < kSubRows; ++i) _mm512_store_ps(scratch.zeros + i * 16, _mm512_setzero_ps());
}

// Returns the rows from `row` on, for tokens [tile.begin, tile.end).
Sub make_sub(const AttentionTile& tile, int row) {
  Sub sub = {row,     std::min(kSubRows, tile.n_rows - row), 0, tile.end, tile.begin, tile.begin,
             tile.end};
  sub.n_row_tiles = sub.n_rows > 16 ? 2 : 1;
  for (int i = row; i < row + sub.n_rows; ++i) {
    const AttentionRow& one = tile.rows[i];
    sub.first = std::min(sub.first, one.first);
    sub.end = std::max(sub.end, one.end);
    sub.whole_first = std::max(sub.whole_first, one.first);
    sub.whole_end =
        std::min(sub.whole_end, one.tree_mask != 0 ? std::min(one.end, one.tree_begin) : one.end);
  }
  sub.first = std::max(sub.first, tile.begin);
  sub.end = std::min(sub.end, tile.end);
  return sub;
}

template <class Units, KvFormat K>
void attend_flash(const AttentionTile& tile, const AttentionState& state) {
  const Scratch scratch(tile);
  [[maybe_unused]] const typename Units::Scope scope;
  begin_rows(tile, scratch, state);
  Sub subs[kMaxTileRows / kSubRows];
  int n_subs = 0, first = tile.end, end = tile.begin;
  for (int row = 0; row < tile.n_rows; row += kSubRows) {
    const Sub& sub = subs[n_subs++] = make_sub(tile, row);
    first = std::min(first, sub.first);
    end = std::max(end, sub.end);
  }
  const int64_t n_fetches = int64_t{n_subs} * ((end - first + kSpan - 1) / kSpan) + 1;
  Fetcher queries(tile.queries, n_fetches), results(tile.results, n_fetches);
  Span span = {};
  for (span.begin = first / 32 * 32; span.begin < end; span.begin += kSpan) {
    span.end = std::min(end, span.begin + kSpan);
    span.n_steps = (span.end - span.begin + 31) / 32;
    for (int u = 0; u < 2 * span.n_steps; ++u) {
      const int token = span.begin + u * kUnitTokens;
      span.units[u] =
          token < span.end && token + kUnitTokens > first ? unit_at(tile, token) : nullptr;
      span.next[u] = token + kSpan < end ? unit_at(tile, token + kSpan) : nullptr;
    }
    load_span<K>(tile, scratch, span);
    for (int i = 0; i < n_subs; ++i) {
      queries.step<false>();
      results.step<true>();
      fetch_units(span, 2 * span.n_steps * i / n_subs, 2 * span.n_steps * (i + 1) / n_subs,
                  tile.layout->bytes);
      attend_span<Units>(tile, scratch, span, subs[i], state);
    }
  }
  for (int r = 0; r < tile.n_rows; ++r) {
    state.max[r] *= kLn2;
    state.sum[r] = _mm512_reduce_add_ps(_mm512_load_ps(scratch.sums + r * 16));
  }
}
