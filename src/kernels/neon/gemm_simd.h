// Simd of the NEON matrix products: a panel is four quarters of 4 rows. Include inside an anonymous
// namespace, after <arm_neon.h> and generic/simd_concepts.h.

struct Neon {
  static constexpr int kLanes = 4;
  static constexpr int kMaxRows = 4;
  static constexpr int kStreams = 2;
  using Bytes = uint8x16_t;
  using Ints = int32x4_t;
  using Floats = float32x4_t;

  [[gnu::always_inline]] static Bytes load(const uint8_t* p) { return vld1q_u8(p); }
  [[gnu::always_inline]] static Bytes load_table(const uint8_t* p) { return vld1q_u8(p); }
  [[gnu::always_inline]] static Bytes splat_byte(int b) {
    return vdupq_n_u8(static_cast<uint8_t>(b));
  }
  [[gnu::always_inline]] static Bytes bit_and(Bytes a, Bytes b) { return vandq_u8(a, b); }
  [[gnu::always_inline]] static Bytes or_and(Bytes a, Bytes b, Bytes mask) {
    return vorrq_u8(a, vandq_u8(b, mask));
  }
  template <int N>
  [[gnu::always_inline]] static Bytes shift_left(Bytes a) {
    return vshlq_n_u8(a, N);
  }
  template <int N>
  [[gnu::always_inline]] static Bytes shift_right(Bytes a) {
    return vshrq_n_u8(a, N);
  }
  static constexpr bool kLookupMasks = false;
  [[gnu::always_inline]] static Bytes lookup(Bytes codes, Bytes table) {
    return vqtbl1q_u8(table, codes);
  }
  [[gnu::always_inline]] static Bytes splat_word(int x) {
    return vreinterpretq_u8_u32(vdupq_n_u32(static_cast<uint32_t>(x)));
  }
  template <int N>
  [[gnu::always_inline]] static Bytes word_left(Bytes a) {
    return vreinterpretq_u8_u32(vshlq_n_u32(vreinterpretq_u32_u8(a), N));
  }
  template <int N>
  [[gnu::always_inline]] static Bytes word_right(Bytes a) {
    return word_right(a, N);
  }
  [[gnu::always_inline]] static Bytes word_right(Bytes a, int n) {
    return vreinterpretq_u8_u32(vshlq_u32(vreinterpretq_u32_u8(a), vdupq_n_s32(-n)));
  }
  [[gnu::always_inline]] static Bytes gather(const uint32_t* table, Bytes indices) {
    const uint32x4_t at = vreinterpretq_u32_u8(indices);
    uint32x4_t v = vld1q_dup_u32(table + vgetq_lane_u32(at, 0));
    v = vld1q_lane_u32(table + vgetq_lane_u32(at, 1), v, 1);
    v = vld1q_lane_u32(table + vgetq_lane_u32(at, 2), v, 2);
    return vreinterpretq_u8_u32(vld1q_lane_u32(table + vgetq_lane_u32(at, 3), v, 3));
  }
  template <class Q>
  static constexpr bool kHasPoints = false;

  // Converts codes to the signed numbers to multiply. Codes of 8 bits lose their bias thereby, so
  // that the sum needs no correction.
  template <int MaxCode>
  [[gnu::always_inline]] static int8x16_t as_signed(Bytes w) {
    return vreinterpretq_s8_u8(MaxCode > 127 ? veorq_u8(w, vdupq_n_u8(0x80)) : w);
  }
  template <int Bias, int MaxCode>
  [[gnu::always_inline]] static Ints correction(int32_t negative_sum) {
    static_assert(MaxCode <= 127 || Bias == 128);
    return vdupq_n_s32(MaxCode > 127 ? 0 : negative_sum * Bias);
  }
  // Products are summed in 16 bits: kTerms of them fit before pairs of lanes must be widened.
  template <int Bias, int MaxCode, int N, bool OneChain>
  [[gnu::always_inline]] static Ints dot(const Bytes* w, const int8_t* x,
                                         const int32_t& negative_sum) {
    constexpr int kTerms = MaxCode > 127 ? 2 : 32767 / (127 * MaxCode);
    // of rows 0 and 1, and of rows 2 and 3; two lanes each
    int32x4_t sum[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    int16x8_t products[2] = {};
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) {
      int32_t four;
      __builtin_memcpy(&four, x + 4 * j, 4);
      const int8x16_t codes = as_signed<MaxCode>(w[j]),
                      values = vreinterpretq_s8_s32(vdupq_n_s32(four));
      if (j % kTerms == 0) {
        products[0] = vmull_s8(vget_low_s8(codes), vget_low_s8(values));
        products[1] = vmull_high_s8(codes, values);
      } else {
        products[0] = vmlal_s8(products[0], vget_low_s8(codes), vget_low_s8(values));
        products[1] = vmlal_high_s8(products[1], codes, values);
      }
      if (j % kTerms == kTerms - 1 || j == N - 1) {
        for (int i = 0; i < 2; ++i) sum[i] = vpadalq_s16(sum[i], products[i]);
      }
    }
    return vaddq_s32(correction<Bias, MaxCode>(negative_sum), vpaddq_s32(sum[0], sum[1]));
  }

  [[gnu::always_inline]] static Floats zero() { return vdupq_n_f32(0.0f); }
  [[gnu::always_inline]] static Floats splat(float x) { return vdupq_n_f32(x); }
  [[gnu::always_inline]] static Floats negate(Floats a) { return vnegq_f32(a); }
  [[gnu::always_inline]] static Floats mul(Floats a, Floats b) { return vmulq_f32(a, b); }
  [[gnu::always_inline]] static Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
  [[gnu::always_inline]] static Floats fma(Floats a, Floats b, Floats c) {
    return vfmaq_f32(c, a, b);
  }
  [[gnu::always_inline]] static Floats to_float(Ints a) { return vcvtq_f32_s32(a); }
  [[gnu::always_inline]] static Floats load_half(const uint8_t* p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
  }
  [[gnu::always_inline]] static uint8x8_t load_4(const uint8_t* p) {
    uint32_t bytes;
    __builtin_memcpy(&bytes, p, 4);
    return vreinterpret_u8_u32(vdup_n_u32(bytes));
  }
  [[gnu::always_inline]] static Floats load_i8(const uint8_t* p) {
    const int16x8_t words = vmovl_s8(vreinterpret_s8_u8(load_4(p)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)));
  }
  [[gnu::always_inline]] static Floats to_float(uint8x8_t bytes) {
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
  }
  [[gnu::always_inline]] static Floats load_nibbles(const uint8_t* p, int first_bit) {
    return to_float(
        vand_u8(vshl_u8(load_4(p), vdup_n_s8(static_cast<int8_t>(-first_bit))), vdup_n_u8(15)));
  }
  // Converts F8 E4M3 (not NaN) by way of FP16 with the same exponent bits: the result times 2^-8.
  [[gnu::always_inline]] static Floats load_f8(const uint8_t* p) {
    const uint16x4_t v = vget_low_u16(vmovl_u8(load_4(p)));
    const uint16x4_t sign = vshl_n_u16(vand_u16(v, vdup_n_u16(0x80)), 8);
    const uint16x4_t rest = vshl_n_u16(vand_u16(v, vdup_n_u16(0x7f)), 7);
    return vcvt_f32_f16(vreinterpret_f16_u16(vorr_u16(sign, rest)));
  }
  [[gnu::always_inline]] static Ints zero_int() { return vdupq_n_s32(0); }
  [[gnu::always_inline]] static Ints add_int(Ints a, Ints b) { return vaddq_s32(a, b); }
  // NaN becomes the limit; abs_max ignores NaN.
  [[gnu::always_inline]] static Floats clamp(Floats a, float limit) {
    return vmaxnmq_f32(vminnmq_f32(a, vdupq_n_f32(limit)), vdupq_n_f32(-limit));
  }
  [[gnu::always_inline]] static Floats load_aligned(const uint8_t* p) {
    return vreinterpretq_f32_u8(vld1q_u8(p));
  }
  [[gnu::always_inline]] static void load_bf16_pairs(const uint8_t* p, Floats& even, Floats& odd) {
    const uint32x4_t v = vreinterpretq_u32_u8(vld1q_u8(p));
    even = vreinterpretq_f32_u32(vshlq_n_u32(v, 16));
    odd = vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000u)));
  }
  [[gnu::always_inline]] static Floats load_f32(const float* p, int n_valid) {
    if (n_valid >= 4) return vld1q_f32(p);
    float lanes[4] = {};
    __builtin_memcpy(lanes, p, static_cast<size_t>(n_valid) * sizeof(float));
    return vld1q_f32(lanes);
  }
  [[gnu::always_inline]] static void store(float* p, Floats a, int n_valid) {
    if (n_valid >= 4) return vst1q_f32(p, a);
    float lanes[4];
    vst1q_f32(lanes, a);
    __builtin_memcpy(p, lanes, static_cast<size_t>(n_valid) * sizeof(float));
  }
  [[gnu::always_inline]] static Floats abs_max(Floats a, Floats b) {
    return vmaxnmq_f32(a, vabsq_f32(b));
  }
  [[gnu::always_inline]] static float max_of(Floats a) { return vmaxvq_f32(a); }
  [[gnu::always_inline]] static void store_rounded(int8_t* p, Floats a) {
    const int16x4_t words = vqmovn_s32(vcvtnq_s32_f32(a));
    const int8x8_t bytes = vqmovn_s16(vcombine_s16(words, words));
    __builtin_memcpy(p, &bytes, 4);
  }
};

static_assert(GemmSimd<Neon>);
