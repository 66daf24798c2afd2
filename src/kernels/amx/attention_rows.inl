// Attention with AMX at the precision of the vector kernels: for the few rows of decoding, when K
// and V stream from memory, and for any number of rows in batch-invariant runs. Include inside an
// anonymous namespace, after avx512bf16/attention_flash.inl and tiles.h.
//
// A query is split into two halves of 8 significant bits, which are two rows of the A operand, and
// so is a weight: BF16 values and the BF16 of their rounding errors with BF16 K and V, high and low
// bytes of 16-bit integers with int8. Up to 8 rows share a pass over a chunk of 64 tokens. The
// result of a row does not depend on other rows.

constexpr float kRowLog2e = 1.44269504f, kRowLn2 = 0.69314718f;
// largest number whose high byte, rounded, is at most 127: 127 * 256 + 127
constexpr float kMostHalves = 32639.0f;

// Prefetches the units of a later chunk, a few cache lines per call, so that loads of memory
// overlap with computation.
class Ahead {
 public:
  Ahead(const Chunk& chunk, int64_t bytes, int n_calls)
      : chunk_(chunk), bytes_(bytes), per_call_((bytes / 64 + n_calls - 1) / n_calls * 64) {}

  [[gnu::always_inline]] void step() {
    for (const int64_t end = std::min(bytes_, at_ + per_call_); at_ < end; at_ += 64) {
      for (int u = chunk_.unit_begin; u < chunk_.unit_end; ++u) {
        // The compiler drops calls of functions that do nothing but prefetch.
        asm volatile("prefetcht0 (%0)" ::"r"(chunk_.next[u] + at_));
      }
    }
  }

 private:
  const Chunk& chunk_;
  int64_t bytes_, per_call_, at_ = 0;
};

template <KvFormat K>
struct RowPasses {
  static constexpr bool kInts = K == KvFormat::kI8;
  static constexpr int kFeatures = kInts ? 64 : 32;     // features per tile of K
  static constexpr int kWeightBytes = kInts ? 16 : 32;  // bytes of a row of weights of a unit

  AttentionTile tile;  // of one head
  AttentionState state;
  int dim, n_k_tiles;
  bool k_padded;      // the last tile of K is partial: it is copied and padded with zeros
  std::byte* q;       // per pass: [n_k_tiles][high halves, low halves of the rows][64]
  float* q_scales;    // [kMaxTileRows]; int8 only
  std::byte* v_copy;  // V of a partial unit, padded with zeros
  std::byte* k_copy;  // [kChunkUnits][1024]

  // Selects head h of a tile.
  RowPasses(const AttentionTile& all, const AttentionState& all_states, int h)
      : tile(tile_of_head(all, h)), state(state_of_head(all, all_states, h)) {
    dim = tile.layout->padded_dim;
    n_k_tiles = (dim + kFeatures - 1) / kFeatures;
    k_padded = dim % kFeatures != 0;
    float* at = tile.scratch;
    q = reinterpret_cast<std::byte*>(at) +
        static_cast<int64_t>(h) * all.head_rows * n_k_tiles * 128;
    at += kMaxTileRows * n_k_tiles * 32;
    q_scales = at + h * all.head_rows;
    at += kMaxTileRows;
    v_copy = reinterpret_cast<std::byte*>(at);
    at += 8 * dim;
    k_copy = reinterpret_cast<std::byte*>(at);
  }

  static void configure(int rows) {  // rows: of a pass; tiles have twice as many
    TileConfig config;
    for (int t = 0; t < 5; ++t) config.set(t, 2 * rows, 64);
    config.set(5, 16, 64);
    config.set(6, 2 * rows, kWeightBytes);
    config.set(7, kWeightBytes / 4, 64);
    tile_configure(config);
  }

  // Splits and stores the query of row i of a pass of R rows, times `scale`.
  void store_query(const AttentionRow& row, float scale, std::byte* to, int i, int R,
                   float* q_scale) const {
    const int head_dim = tile.layout->head_dim;
    const auto part = [&](int d) {
      const int left = head_dim - d;
      const F x = left >= 16 ? Simd::load(row.q + d)
                  : left > 0 ? Simd::load_n(row.q + d, left)
                             : Simd::zero();
      return Simd::mul(x, Simd::set1(scale));
    };
    float inverse = 0.0f;
    if constexpr (kInts) {
      F most = Simd::zero();
      for (int d = 0; d < head_dim; d += 16) most = Simd::max(most, _mm512_abs_ps(part(d)));
      const float m = Simd::reduce_max(most);
      inverse = m > 1e-30f ? kMostHalves / m : 0.0f;
      *q_scale = m / kMostHalves;
    }
    for (int d = 0; d < n_k_tiles * kFeatures; d += 16) {
      std::byte* at = to + (d / kFeatures * 2 * R + i) * 64 + d % kFeatures * (kInts ? 1 : 2);
      store_halves(part(d), inverse, at, at + R * 64);
    }
  }

  // Splits x into high and low halves; for int8, x * inverse is rounded to 16 bits first.
  [[gnu::always_inline]] static void store_halves(F x, float inverse, std::byte* upper,
                                                  std::byte* lower) {
    if constexpr (kInts) {
      const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(inverse)));
      const __m512i up = _mm512_srai_epi32(_mm512_add_epi32(whole, _mm512_set1_epi32(128)), 8);
      _mm_store_si128(reinterpret_cast<__m128i*>(upper), _mm512_cvtepi32_epi8(up));
      _mm_store_si128(reinterpret_cast<__m128i*>(lower),
                      _mm512_cvtepi32_epi8(_mm512_sub_epi32(whole, _mm512_slli_epi32(up, 8))));
    } else {
      const auto up = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
      const __m512 rest =
          _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(up), 16)));
      _mm256_store_si256(reinterpret_cast<__m256i*>(upper), up);
      _mm256_store_si256(reinterpret_cast<__m256i*>(lower),
                         reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(rest)));
    }
  }

  // Joins the sums of high halves, at p, and of low halves, 16 * R floats further.
  template <int R>
  static F join(const float* p) {
    if constexpr (kInts) {
      const F up = _mm512_cvtepi32_ps(_mm512_load_si512(p));
      return Simd::fma(up, Simd::set1(256.0f), _mm512_cvtepi32_ps(_mm512_load_si512(p + 16 * R)));
    } else {
      return Simd::add(Simd::load(p), Simd::load(p + 16 * R));
    }
  }

  template <int C, int A, int B>
  [[gnu::always_inline]] static void dot() {
    if constexpr (kInts) {
      tile_dot_signed<C, A, B>();
    } else {
      tile_dot_bf16<C, A, B>();
    }
  }

  template <int U>
  [[gnu::always_inline]] void score_unit(const Chunk& chunk, int k_tile, Ahead& ahead) const {
    if (U < chunk.unit_begin || U >= chunk.unit_end) return;
    const std::byte* k = chunk.units[U] + k_tile * 1024;
    if (k_padded && k_tile == n_k_tiles - 1) {
      std::byte* copy = k_copy + U * 1024;
      for (int i = 0; i < dim % kFeatures * 64 / (kFeatures / 16); i += 64)
        _mm512_store_si512(copy + i, _mm512_loadu_si512(k + i));
      k = copy;
    }
    tile_load<5>(k, 64);
    dot<U, 4, 5>();
    ahead.step();
  }

  // scores: [unit][high, low][R rows][16 tokens]
  template <int R>
  void score(const Chunk& chunk, const std::byte* queries, float* scores, Ahead& ahead) const {
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
    for (int k_tile = 0; k_tile < n_k_tiles; ++k_tile, queries += 2 * R * 64) {
      tile_load<4>(queries, 64);
      score_unit<0>(chunk, k_tile, ahead);
      score_unit<1>(chunk, k_tile, ahead);
      score_unit<2>(chunk, k_tile, ahead);
      score_unit<3>(chunk, k_tile, ahead);
    }
    tile_store<0>(scores, 64);
    tile_store<1>(scores + 32 * R, 64);
    tile_store<2>(scores + 64 * R, 64);
    tile_store<3>(scores + 96 * R, 64);
  }

  // Returns the scores of row r for unit u, in units of log 2; masked tokens have the lowest value.
  template <int R, bool Whole>
  [[gnu::always_inline]] F scores_of(const Chunk& chunk, int r, int u, const float* halves) const {
    F s = join<R>(halves);
    if constexpr (kInts) {
      const F scales =
          Simd::load(reinterpret_cast<const float*>(chunk.units[u] + tile.layout->k_scales));
      s = Simd::mul(s, Simd::mul(scales, Simd::set1(q_scales[r])));
    }
    if constexpr (Whole) return s;
    if (tile.softcap > 0.0f) s = Simd::mul(tanh(s), Simd::set1(tile.softcap * kRowLog2e));
    return Simd::keep(visible_lanes(tile.rows[r], chunk.begin + u * kUnitTokens), s,
                      Simd::set1(kLowest));
  }

  // One step of the online softmax of rows r .. r + n - 1: converts scores to weights. Whole: every
  // row sees the whole chunk. factors: of the earlier sums; units: value of weight 1 (int8). Rows
  // are interleaved in each of three phases, to hide latency.
  template <int R, bool Whole>
  void weigh(const Chunk& chunk, int r, int n, float* scores, std::byte* weights, float* factors,
             float* units, Ahead& ahead) const {
    const int begin = Whole ? 0 : chunk.unit_begin, end = Whole ? kChunkUnits : chunk.unit_end;
    alignas(64) float found[16] = {}, sums[16] = {}, inverse[16] = {};
    for (int i = 0; i < n; ++i) {
      F highest = Simd::set1(kLowest);
      for (int u = begin; u < end; ++u) {
        float* at = scores + (u * 2 * R + i) * 16;
        const F s = scores_of<R, Whole>(chunk, r + i, u, at);
        Simd::store(at, s);
        highest = Simd::max(highest, s);
      }
      found[i] = Simd::reduce_max(highest);
    }
    ahead.step();
    const F old = Simd::load_n(state.max + r, n), max = Simd::max(old, Simd::load(found));
    const __mmask16 moved = _mm512_cmp_ps_mask(old, max, _CMP_NEQ_OQ);
    const F factor = Simd::keep(moved, exp2_exact(Simd::sub(old, max)), Simd::set1(1.0f));
    Simd::store_n(state.max + r, max, n);
    Simd::store_n(factors, factor, R);
    Simd::store(found, max);
    for (int i = 0; i < n; ++i) {
      const F m = Simd::set1(found[i]);
      F sum = Simd::zero(), most = Simd::zero();
      for (int u = begin; u < end; ++u) {
        float* at = scores + (u * 2 * R + i) * 16;
        F w = exp2_exact(Simd::sub(Simd::load(at), m));
        const uint32_t lanes =
            Whole ? 0xffffu : visible_lanes(tile.rows[r + i], chunk.begin + u * kUnitTokens);
        if constexpr (!Whole) w = Simd::keep(lanes, w, Simd::zero());
        sum = Simd::add(sum, w);
        if constexpr (kInts) {
          w = Simd::mul(w, Simd::load(reinterpret_cast<const float*>(chunk.units[u] +
                                                                     tile.layout->v_scales)));
          if constexpr (!Whole) w = Simd::keep(lanes, w, Simd::zero());
          most = Simd::max(most, w);
        }
        Simd::store(at, w);
      }
      sums[i] = Simd::reduce_add(sum);
      if constexpr (kInts) units[i] = Simd::reduce_max(most);
      ahead.step();
    }
    Simd::store_n(state.sum + r,
                  Simd::fma(Simd::load_n(state.sum + r, n), factor, Simd::load(sums)), n);
    if constexpr (kInts) {
      const F most = Simd::load_n(units, n), limit = Simd::set1(kMostHalves);
      const __mmask16 some = _mm512_cmp_ps_mask(most, Simd::set1(1e-30f), _CMP_GT_OQ);
      Simd::store(inverse, _mm512_maskz_div_ps(some, limit, most));
      Simd::store_n(units, Simd::div(most, limit), n);
    }
    for (int i = 0; i < n; ++i) {
      for (int u = begin; u < end; ++u) {
        std::byte* to = weights + (u * 2 * R + i) * kWeightBytes;
        store_halves(Simd::load(scores + (u * 2 * R + i) * 16), inverse[i], to,
                     to + R * kWeightBytes);
      }
    }
    for (int i = n; i < R; ++i) {  // nonexistent rows must not be NaN
      for (int half = 0; half < 2 * kChunkUnits; ++half)
        std::memset(weights + (half * R + i) * kWeightBytes, 0, kWeightBytes);
    }
  }

  // Whether every row sees the whole chunk and there is no softcap.
  bool is_whole(const Chunk& chunk, int r, int n) const {
    bool whole =
        chunk.unit_begin == 0 && chunk.end == chunk.begin + kChunkTokens && !(tile.softcap > 0.0f);
    for (int i = r; i < r + n; ++i) {
      const AttentionRow& row = tile.rows[i];
      whole &= row.first <= chunk.begin && row.end >= chunk.end && row.tree_mask == 0;
    }
    return whole;
  }

  // Sets v to V of each unit; of a partial unit to a copy without the slots after the last token,
  // which may be NaN.
  void find_values(const Chunk& chunk, const std::byte** v) const {
    for (int u = chunk.unit_begin; u < chunk.unit_end; ++u) {
      v[u] = chunk.units[u] + tile.layout->v_offset;
      const int n = chunk.end - chunk.begin - u * kUnitTokens;
      if (kInts || n >= kUnitTokens) continue;
      for (int t = 0; t < kUnitTokens; t += 2) {
        const __mmask32 keep = n >= t + 2 ? 0xffffffffu : n == t + 1 ? 0x55555555u : 0u;
        for (int64_t at = int64_t{t} * dim * 2; at < int64_t{t + 2} * dim * 2; at += 64)
          _mm512_store_si512(v_copy + at, _mm512_maskz_loadu_epi16(keep, v[u] + at));
      }
      v[u] = v_copy;
    }
  }

  // sums: [NJ][high, low][R rows][16 features]
  template <int NJ>
  [[gnu::always_inline]] void sum_values(const Chunk& chunk, const std::byte* const* v, int d,
                                         const std::byte* weights, int64_t weight_bytes,
                                         float* sums, int64_t sum_floats, Ahead& ahead) const {
    const ptrdiff_t stride = ptrdiff_t{dim} * 4;
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
    for (int u = chunk.unit_begin; u < chunk.unit_end; ++u) {
      tile_load<6>(weights + u * weight_bytes, kWeightBytes);
      const std::byte* from = v[u] + d * 4;
      tile_load<7>(from, stride);
      dot<0, 6, 7>();
      if constexpr (NJ > 1) {
        tile_load<7>(from + 64, stride);
        dot<1, 6, 7>();
      }
      ahead.step();
      if constexpr (NJ > 2) {
        tile_load<7>(from + 128, stride);
        dot<2, 6, 7>();
      }
      if constexpr (NJ > 3) {
        tile_load<7>(from + 192, stride);
        dot<3, 6, 7>();
      }
      ahead.step();
    }
    tile_store<0>(sums, 64);
    if constexpr (NJ > 1) tile_store<1>(sums + sum_floats, 64);
    if constexpr (NJ > 2) tile_store<2>(sums + 2 * sum_floats, 64);
    if constexpr (NJ > 3) tile_store<3>(sums + 3 * sum_floats, 64);
  }

  // One pass: rows r .. r + n - 1, n <= R. queries: those of the pass.
  template <int R>
  void attend(const Chunk& chunk, int r, int n, const std::byte* queries, Ahead& ahead) const {
    alignas(64) float scores[kChunkUnits * 32 * R];
    alignas(64) std::byte weights[kChunkUnits * 2 * R * kWeightBytes];
    float factors[R], units[R] = {};
    score<R>(chunk, queries, scores, ahead);
    if (is_whole(chunk, r, n)) {
      weigh<R, true>(chunk, r, n, scores, weights, factors, units, ahead);
    } else {
      weigh<R, false>(chunk, r, n, scores, weights, factors, units, ahead);
    }
    const std::byte* v[kChunkUnits] = {};
    find_values(chunk, v);
    for (int d = 0; d < dim; d += 64) {
      const int n_columns = std::min(4, (dim - d) / 16);
      float* sums = scores;
      constexpr int64_t kWeights = 2 * R * kWeightBytes;
      if (n_columns == 4) sum_values<4>(chunk, v, d, weights, kWeights, sums, 32 * R, ahead);
      if (n_columns == 3) sum_values<3>(chunk, v, d, weights, kWeights, sums, 32 * R, ahead);
      if (n_columns == 2) sum_values<2>(chunk, v, d, weights, kWeights, sums, 32 * R, ahead);
      if (n_columns == 1) sum_values<1>(chunk, v, d, weights, kWeights, sums, 32 * R, ahead);
      for (int i = 0; i < n; ++i) {
        float* out = state.out + static_cast<int64_t>(r + i) * dim + d;
        const F factor = Simd::set1(factors[i]), unit = Simd::set1(units[i]);
        for (int j = 0; j < n_columns; ++j) {
          const F added = join<R>(sums + j * 32 * R + i * 16),
                  old = Simd::mul(Simd::load(out + 16 * j), factor);
          Simd::store(out + 16 * j, kInts ? Simd::fma(added, unit, old) : Simd::add(added, old));
        }
      }
    }
  }

  static int pass_rows(int left) { return left > 4 ? 8 : 4; }

  void store_queries() const {
    const float scale = tile.softcap > 0.0f ? tile.scale / tile.softcap : tile.scale * kRowLog2e;
    // Nonexistent rows of a pass, and features beyond the last, are zero.
    std::memset(q, 0, static_cast<size_t>(padded_head_rows(tile.n_rows)) * n_k_tiles * 128);
    for (int r = 0; r < tile.n_rows; ++r) {
      const int begin = r / 8 * 8, rows = pass_rows(tile.n_rows - begin);
      store_query(tile.rows[r], scale, q + static_cast<int64_t>(begin) * n_k_tiles * 128, r - begin,
                  rows, q_scales + r);
    }
    if (k_padded) std::memset(k_copy, 0, kChunkUnits * 1024);
  }

  void attend_chunk(const Chunk& chunk) const {
    int64_t to_fetch = tile.layout->bytes;  // bytes to prefetch, by the first pass
    for (int r = 0; r < tile.n_rows; r += 8) {
      const int n = std::min(8, tile.n_rows - r), rows = pass_rows(n);
      if (unseen(tile, chunk.begin, r, n)) continue;
      const int n_units = chunk.unit_end - chunk.unit_begin;
      Ahead ahead(chunk, to_fetch, n_units * n_k_tiles + n + 1 + (dim + 63) / 64 * n_units * 2);
      to_fetch = 0;
      const std::byte* queries = q + static_cast<int64_t>(r) * n_k_tiles * 128;
      if (rows == 8) {
        attend<8>(chunk, r, n, queries, ahead);
      } else {
        if (tile.n_rows > 4) configure(4);
        attend<4>(chunk, r, n, queries, ahead);
        if (tile.n_rows > 4) configure(8);
      }
    }
  }
};

template <KvFormat K>
void attend_row_passes(const AttentionTile& tile, const AttentionState& state) {
  const auto [first, end] = begin_states(tile, state);
  for (int h = 0; h < tile.n_heads; ++h) RowPasses<K>(tile, state, h).store_queries();
  RowPasses<K>::configure(RowPasses<K>::pass_rows(tile.n_rows));
  for (int begin = first / kChunkTokens * kChunkTokens; begin < end; begin += kChunkTokens) {
    const Chunk chunk = make_chunk(tile, begin, first, end);
    for (int h = 0; h < tile.n_heads; ++h)
      RowPasses<K>(tile, state, h).attend_chunk(chunk_of_head(tile, chunk, h));
  }
  tile_release();
  for (int h = 0; h < tile.n_heads; ++h) {
    for (int r = 0; r < tile.n_rows; ++r) state.max[h * tile.head_rows + r] *= kRowLn2;
  }
}
