// Simd of the AVX-512 matrix products. Include inside an anonymous namespace, after <immintrin.h>,
// <bit> and generic/simd_concepts.h.

struct Avx512 {
  static constexpr int kLanes = 16;
  static constexpr int kMaxRows = 16;
  static constexpr int kStreams = 4;
  using Bytes = __m512i;
  using Ints = __m512i;
  using Floats = __m512;

  [[gnu::always_inline]] static Bytes load(const uint8_t* p) { return _mm512_load_si512(p); }
  [[gnu::always_inline]] static Bytes load_table(const uint8_t* p) {
    return _mm512_maskz_broadcast_i32x4(0xffff,
                                        _mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static Bytes splat_byte(int b) {
    return _mm512_set1_epi8(static_cast<char>(b));
  }
  [[gnu::always_inline]] static Bytes bit_and(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
  [[gnu::always_inline]] static Bytes or_and(Bytes a, Bytes b, Bytes mask) {
    // bits of b where the mask is set, else of a
    return _mm512_ternarylogic_epi32(a, b, mask, 0xd8);
  }
  template <int N>
  [[gnu::always_inline]] static Bytes shift_left(Bytes a) {
    return _mm512_slli_epi16(a, N);
  }
  template <int N>
  [[gnu::always_inline]] static Bytes shift_right(Bytes a) {
    return _mm512_srli_epi16(a, N);
  }
  static constexpr bool kLookupMasks = true;
  [[gnu::always_inline]] static Bytes lookup(Bytes codes, Bytes table) {
    return _mm512_permutexvar_epi8(codes, table);
  }
  [[gnu::always_inline]] static Bytes splat_word(int x) { return _mm512_set1_epi32(x); }
  template <int N>
  [[gnu::always_inline]] static Bytes word_left(Bytes a) {
    return _mm512_slli_epi32(a, N);
  }
  template <int N>
  [[gnu::always_inline]] static Bytes word_right(Bytes a) {
    return _mm512_srli_epi32(a, N);
  }
  [[gnu::always_inline]] static Bytes word_right(Bytes a, int n) {
    return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n));
  }
  [[gnu::always_inline]] static Bytes gather(const uint32_t* table, Bytes indices) {
    return _mm512_i32gather_epi32(indices, table, 4);
  }

  // Points of small grids are looked up in registers, as separate tables of bytes, 64 per
  // register.
  template <class Q>
  static constexpr bool kHasPoints = Q::kIndexBits <= 9;
  [[gnu::always_inline]] static Bytes look_up_byte(Bytes indices, __mmask64 upper,
                                                   const uint8_t* table) {
    const __m512i low = _mm512_permutex2var_epi8(_mm512_loadu_si512(table), indices,
                                                 _mm512_loadu_si512(table + 64));
    const __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(table + 128), indices,
                                                  _mm512_loadu_si512(table + 192));
    return _mm512_mask_blend_epi8(upper, low, high);
  }
  // For indices of 9 bits, whose highest bit is the top bit of each byte of `ninth`.
  template <int Bits>
  [[gnu::always_inline]] static Bytes look_up_byte(Bytes indices, Bytes ninth,
                                                   const uint8_t* table) {
    const __mmask64 upper = _mm512_movepi8_mask(indices);
    const Bytes first = look_up_byte(indices, upper, table);
    if constexpr (Bits == 8) return first;
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(ninth), first,
                                  look_up_byte(indices, upper, table + 256));
  }
  // Spreads fields of `bits` bits to bytes, from bit `first` of every dword on; the second dword of
  // a 64-bit lane continues at bit 32.
  [[gnu::always_inline]] static Bytes spread(Bytes a, int first, int bits) {
    const uint64_t even = 0x0101010101010101u * static_cast<unsigned>(first);
    const uint64_t steps = 0x03020100u * static_cast<unsigned>(bits);
    return _mm512_multishift_epi64_epi8(
        _mm512_set1_epi64(static_cast<long long>(even + (steps | (steps + 0x20202020u) << 32))), a);
  }
  template <class Q>
  [[gnu::always_inline]] static void points(const uint8_t* line, Bytes high_bits, Bytes (&w)[8]) {
    constexpr int kBits = Q::kIndexBits;
    const uint8_t *first_half = Q::kGrid.halves[0], *second_half = Q::kGrid.halves[1];
    if constexpr (Q::kColumns == 8) {
      const Bytes indices = load(line), ninth = spread(high_bits, 57, 1);
      const Bytes first = look_up_byte<kBits>(indices, ninth, first_half);
      const Bytes second = look_up_byte<kBits>(indices, ninth, second_half);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        w[2 * i] = spread(first, 8 * i, 2);
        w[2 * i + 1] = spread(second, 8 * i, 2);
      }
    } else {
      // Pairs of points of four rows become adjacent, so that interleaving of the halves gives rows
      // of dwords.
      const Bytes order = _mm512_broadcast_i32x4(
          _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
#pragma GCC unroll 2
      for (int l = 0; l < 2; ++l) {
        const Bytes indices = _mm512_shuffle_epi8(load(line + 64 * l), order);
        const Bytes ninth = _mm512_shuffle_epi8(spread(high_bits, 57 + 4 * l, 1), order);
        const Bytes first = look_up_byte<kBits>(indices, ninth, first_half);
        const Bytes second = look_up_byte<kBits>(indices, ninth, second_half);
        const Bytes low = _mm512_unpacklo_epi8(first, second),
                    high = _mm512_unpackhi_epi8(first, second);
        w[4 * l] = spread(low, 0, 4);
        w[4 * l + 1] = spread(low, 16, 4);
        w[4 * l + 2] = spread(high, 0, 4);
        w[4 * l + 3] = spread(high, 16, 4);
      }
    }
  }

  [[gnu::always_inline]] static Ints splat_int(const void* p) {
    int32_t value;
    __builtin_memcpy(&value, p, 4);
    return _mm512_set1_epi32(value);
  }
  // One accumulator if enough other rows hide its latency, otherwise two.
  template <int Bias, int MaxCode, int N, bool OneChain>
  [[gnu::always_inline]] static Ints dot(const Bytes* w, const int8_t* x,
                                         const int32_t& negative_sum) {
    static_assert(Bias == 0 || std::has_single_bit(static_cast<unsigned>(Bias)));
    Ints a = _mm512_setzero_si512(), b = _mm512_setzero_si512();
    if constexpr (Bias != 0) {
      a = _mm512_slli_epi32(splat_int(&negative_sum),
                            std::countr_zero(static_cast<unsigned>(Bias)));
    }
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) {
      Ints& sum = OneChain || j % 2 == 0 ? a : b;
      sum = _mm512_dpbusd_epi32(sum, w[j], splat_int(x + 4 * j));
    }
    return OneChain ? a : _mm512_add_epi32(a, b);
  }

  // dot() of 32 columns. The last `Shuffled` (at most 4) groups of four activations are broadcast
  // by shuffles of one load, as separate loads would be the bottleneck. For processors that shuffle
  // in parallel with products (Zen 5).
  static constexpr bool kShuffles = true;
  template <int Bias, int Shuffled>
  [[gnu::always_inline]] static Ints shuffled_dot(const Bytes* w, const int8_t* x,
                                                  const int32_t& negative_sum) {
    const Ints last =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + 16)));
    Ints sums[2] = {start<Bias, 0>(negative_sum), _mm512_setzero_si512()};
    const auto add = [&]<int J>() __attribute__((always_inline)) {
      Ints four;
      if constexpr (J < 8 - Shuffled) {
        four = splat_int(x + 4 * J);
      } else {
        four = _mm512_shuffle_epi32(last, static_cast<_MM_PERM_ENUM>((J - 4) * 0x55));
      }
      sums[J % 2] = _mm512_dpbusd_epi32(sums[J % 2], w[J], four);
    };
    [&]<int... J>(std::integer_sequence<int, J...>) __attribute__((always_inline)) {
      (add.template operator()<J>(), ...);
    }(std::make_integer_sequence<int, 8>());
    return _mm512_add_epi32(sums[0], sums[1]);
  }

  static constexpr int kBlockRows = 4;
  static constexpr int kBlockPanels = 2;
  static constexpr int kStepsAhead = 4;
  [[gnu::always_inline]] static void store_bytes(uint8_t* p, Bytes a) { _mm512_store_si512(p, a); }
  template <int Bias, int MaxCode>
  [[gnu::always_inline]] static Ints start(const int32_t& negative_sum) {
    if constexpr (Bias == 0) return _mm512_setzero_si512();
    return _mm512_slli_epi32(splat_int(&negative_sum),
                             std::countr_zero(static_cast<unsigned>(Bias)));
  }
  template <int MaxCode, int J, int N>
  [[gnu::always_inline]] static void add_products(Ints& sum, Ints& pairs, Bytes w, Ints x) {
    // Two accumulators per output: the eight outputs alone would just cover the latency of the
    // units, and every delayed product would be a lost cycle.
    if constexpr (J % 2 == 1) {
      pairs = _mm512_dpbusd_epi32(J == 1 ? _mm512_setzero_si512() : pairs, w, x);
    } else {
      sum = _mm512_dpbusd_epi32(sum, w, x);
    }
    if constexpr (J == N - 1) sum = _mm512_add_epi32(sum, pairs);
  }

  [[gnu::always_inline]] static Floats zero() { return _mm512_setzero_ps(); }
  [[gnu::always_inline]] static Floats splat(float x) { return _mm512_set1_ps(x); }
  [[gnu::always_inline]] static Floats negate(Floats a) {
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
  }
  [[gnu::always_inline]] static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  [[gnu::always_inline]] static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  [[gnu::always_inline]] static Floats fma(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  [[gnu::always_inline]] static Floats to_float(Ints a) { return _mm512_cvtepi32_ps(a); }
  [[gnu::always_inline]] static Floats load_half(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  [[gnu::always_inline]] static Floats load_i8(const uint8_t* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p))));
  }
  [[gnu::always_inline]] static Floats load_nibbles(const uint8_t* p, int first_bit) {
    const __m512i v = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_cvtepi32_ps(_mm512_and_si512(word_right(v, first_bit), _mm512_set1_epi32(15)));
  }
  // Converts F8 E4M3 (not NaN) by way of FP16 with the same exponent bits: the result times 2^-8.
  [[gnu::always_inline]] static Floats load_f8(const uint8_t* p) {
    const __m256i v = _mm256_cvtepu8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(v, _mm256_set1_epi16(0x80)), 8);
    const __m256i rest = _mm256_slli_epi16(_mm256_and_si256(v, _mm256_set1_epi16(0x7f)), 7);
    return _mm512_cvtph_ps(_mm256_or_si256(sign, rest));
  }
  [[gnu::always_inline]] static Ints zero_int() { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static Ints add_int(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  [[gnu::always_inline]] static Floats clamp(Floats a, float limit) {
    return _mm512_max_ps(_mm512_min_ps(a, _mm512_set1_ps(limit)), _mm512_set1_ps(-limit));
  }
  [[gnu::always_inline]] static Floats load_aligned(const uint8_t* p) { return _mm512_load_ps(p); }
  [[gnu::always_inline]] static void load_bf16_pairs(const uint8_t* p, Floats& even, Floats& odd) {
    const __m512i v = _mm512_load_si512(p);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
    odd =
        _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  [[gnu::always_inline]] static __mmask16 first(int n) {
    return static_cast<__mmask16>(n >= 16 ? 0xffff : (1 << n) - 1);
  }
  [[gnu::always_inline]] static Floats load_f32(const float* p, int n_valid) {
    return _mm512_maskz_loadu_ps(first(n_valid), p);
  }
  [[gnu::always_inline]] static void store(float* p, Floats a, int n_valid) {
    _mm512_mask_storeu_ps(p, first(n_valid), a);
  }
  [[gnu::always_inline]] static Floats abs_max(Floats a, Floats b) {
    return _mm512_max_ps(a, _mm512_abs_ps(b));
  }
  [[gnu::always_inline]] static float max_of(Floats a) { return _mm512_reduce_max_ps(a); }
  [[gnu::always_inline]] static void store_rounded(int8_t* p, Floats a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
  }
};

static_assert(FetchesActivations<Avx512> && ShufflesActivations<Avx512>);
