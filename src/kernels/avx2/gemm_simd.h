// Simd of the AVX2 matrix products: a panel is two halves of 8 rows. Include inside an anonymous
// namespace, after <immintrin.h> and generic/simd_concepts.h.

struct Avx2 {
  static constexpr int kLanes = 8;
  static constexpr int kMaxRows = 4;
  static constexpr int kStreams = 2;
  using Bytes = __m256i;
  using Ints = __m256i;
  using Floats = __m256;

  [[gnu::always_inline]] static Bytes load(const uint8_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  [[gnu::always_inline]] static Bytes load_table(const uint8_t* p) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static Bytes splat_byte(int b) {
    return _mm256_set1_epi8(static_cast<char>(b));
  }
  [[gnu::always_inline]] static Bytes bit_and(Bytes a, Bytes b) { return _mm256_and_si256(a, b); }
  [[gnu::always_inline]] static Bytes or_and(Bytes a, Bytes b, Bytes mask) {
    return _mm256_or_si256(a, _mm256_and_si256(b, mask));
  }
  template <int N>
  [[gnu::always_inline]] static Bytes shift_left(Bytes a) {
    return _mm256_slli_epi16(a, N);
  }
  template <int N>
  [[gnu::always_inline]] static Bytes shift_right(Bytes a) {
    return _mm256_srli_epi16(a, N);
  }
  static constexpr bool kLookupMasks = false;
  [[gnu::always_inline]] static Bytes lookup(Bytes codes, Bytes table) {
    return _mm256_shuffle_epi8(table, codes);
  }
  [[gnu::always_inline]] static Bytes splat_word(int x) { return _mm256_set1_epi32(x); }
  template <int N>
  [[gnu::always_inline]] static Bytes word_left(Bytes a) {
    return _mm256_slli_epi32(a, N);
  }
  template <int N>
  [[gnu::always_inline]] static Bytes word_right(Bytes a) {
    return _mm256_srli_epi32(a, N);
  }
  [[gnu::always_inline]] static Bytes word_right(Bytes a, int n) {
    return _mm256_srl_epi32(a, _mm_cvtsi32_si128(n));
  }
  [[gnu::always_inline]] static Bytes gather(const uint32_t* table, Bytes indices) {
    return _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), indices, 4);
  }
  template <class Q>
  static constexpr bool kHasPoints = false;

  [[gnu::always_inline]] static Ints splat_int(const void* p) {
    int32_t value;
    __builtin_memcpy(&value, p, 4);
    return _mm256_set1_epi32(value);
  }
  // Pairs of products are summed in 16 bits: kTerms of them fit before they must be widened. Codes
  // of 8 bits are made signed first, since two products of unsigned bytes would overflow.
  template <int Bias, int MaxCode, int N, bool OneChain>
  [[gnu::always_inline]] static Ints dot(const Bytes* w, const int8_t* x,
                                         const int32_t& negative_sum) {
    constexpr bool kSigned = MaxCode > 127;
    static_assert(!kSigned || Bias == 128);
    constexpr int kTerms = kSigned ? 1 : 32767 / (2 * 127 * MaxCode);
    const __m256i ones = _mm256_set1_epi16(1);
    Ints sum = _mm256_setzero_si256();
    if constexpr (Bias != 0 && !kSigned) {
      sum = _mm256_mullo_epi32(splat_int(&negative_sum), _mm256_set1_epi32(Bias));
    }
    __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) {
      __m256i p;
      if constexpr (kSigned) {
        const __m256i s = _mm256_xor_si256(w[j], _mm256_set1_epi8(static_cast<char>(0x80)));
        p = _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(splat_int(x + 4 * j), s));
      } else {
        p = _mm256_maddubs_epi16(w[j], splat_int(x + 4 * j));
      }
      pairs = j % kTerms == 0 ? p : _mm256_add_epi16(pairs, p);
      if (j % kTerms == kTerms - 1 || j == N - 1)
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
  }

  // 16 registers hold the accumulators of a few rows and one column of codes, but not also the
  // codes of a whole step.
  static constexpr bool kColumnsFirst = true;
  // 2,048 columns of so many rows fit a second-level cache of 512 KiB beside the sums.
  static constexpr int kCachedRows = 64;
  static constexpr int kBlockRows = 4;
  static constexpr int kBlockPanels = 1;
  [[gnu::always_inline]] static void store_bytes(uint8_t* p, Bytes a) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), a);
  }
  template <int Bias, int MaxCode>
  [[gnu::always_inline]] static Ints start(const int32_t& negative_sum) {
    if constexpr (Bias == 0 || MaxCode > 127) return _mm256_setzero_si256();
    return _mm256_mullo_epi32(splat_int(&negative_sum), _mm256_set1_epi32(Bias));
  }
  // See dot().
  template <int MaxCode, int J, int N>
  [[gnu::always_inline]] static void add_products(Ints& sum, Ints& pairs, Bytes w, Ints x) {
    constexpr bool kSigned = MaxCode > 127;
    constexpr int kTerms = kSigned ? 1 : 32767 / (2 * 127 * MaxCode);
    __m256i p;
    if constexpr (kSigned) {
      const __m256i s = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
      p = _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(x, s));
    } else {
      p = _mm256_maddubs_epi16(w, x);
    }
    pairs = J % kTerms == 0 ? p : _mm256_add_epi16(pairs, p);
    // Barriers keep g++ from reordering the additions, which would spill all products to memory.
    if constexpr (J % kTerms == kTerms - 1 || J == N - 1) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      asm("" : "+x"(sum));
    } else {
      asm("" : "+x"(pairs));
    }
  }

  [[gnu::always_inline]] static Floats zero() { return _mm256_setzero_ps(); }
  [[gnu::always_inline]] static Floats splat(float x) { return _mm256_set1_ps(x); }
  [[gnu::always_inline]] static Floats negate(Floats a) {
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
  }
  [[gnu::always_inline]] static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  [[gnu::always_inline]] static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  [[gnu::always_inline]] static Floats fma(Floats a, Floats b, Floats c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  [[gnu::always_inline]] static Floats to_float(Ints a) { return _mm256_cvtepi32_ps(a); }
  [[gnu::always_inline]] static Floats load_half(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static __m128i load_8(const uint8_t* p) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  }
  [[gnu::always_inline]] static Floats load_i8(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8(p)));
  }
  [[gnu::always_inline]] static Floats load_nibbles(const uint8_t* p, int first_bit) {
    const __m256i v = word_right(_mm256_cvtepu8_epi32(load_8(p)), first_bit);
    return _mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32(15)));
  }
  // Converts F8 E4M3 (not NaN) by way of FP16 with the same exponent bits: the result times 2^-8.
  [[gnu::always_inline]] static Floats load_f8(const uint8_t* p) {
    const __m128i v = _mm_cvtepu8_epi16(load_8(p));
    const __m128i sign = _mm_slli_epi16(_mm_and_si128(v, _mm_set1_epi16(0x80)), 8);
    const __m128i rest = _mm_slli_epi16(_mm_and_si128(v, _mm_set1_epi16(0x7f)), 7);
    return _mm256_cvtph_ps(_mm_or_si128(sign, rest));
  }
  [[gnu::always_inline]] static Ints zero_int() { return _mm256_setzero_si256(); }
  [[gnu::always_inline]] static Ints add_int(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  [[gnu::always_inline]] static Floats clamp(Floats a, float limit) {
    return _mm256_max_ps(_mm256_min_ps(a, _mm256_set1_ps(limit)), _mm256_set1_ps(-limit));
  }
  [[gnu::always_inline]] static Floats load_aligned(const uint8_t* p) {
    return _mm256_load_ps(reinterpret_cast<const float*>(p));
  }
  [[gnu::always_inline]] static void load_bf16_pairs(const uint8_t* p, Floats& even, Floats& odd) {
    const __m256i v = load(p);
    even = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
    odd =
        _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  [[gnu::always_inline]] static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  [[gnu::always_inline]] static Floats load_f32(const float* p, int n_valid) {
    return n_valid >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first(n_valid));
  }
  [[gnu::always_inline]] static void store(float* p, Floats a, int n_valid) {
    if (n_valid >= 8) {
      _mm256_storeu_ps(p, a);
    } else {
      _mm256_maskstore_ps(p, first(n_valid), a);
    }
  }
  [[gnu::always_inline]] static Floats abs_max(Floats a, Floats b) {
    return _mm256_max_ps(a, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), b));
  }
  [[gnu::always_inline]] static float max_of(Floats a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }
  [[gnu::always_inline]] static void store_rounded(int8_t* p, Floats a) {
    const __m256i v = _mm256_cvtps_epi32(a);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }
};

static_assert(ColumnsFirst<Avx2> && CachesRows<Avx2>);
