// 16 float lanes in one register. scalar/simd.h specifies every function.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/generic/simd_concepts.h"

namespace penstock {
namespace {

struct Simd {
  using F = __m512;
  static constexpr int kAccumulators = 16;
  static constexpr int kRows = 8;
  static constexpr int kRegisterBytes = 64;

  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void store_n(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }
  static F load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  [[gnu::always_inline]] static void load_i8_pairs(const int8_t* p, int half, F& first, F& second) {
    const __m512i fours = _mm512_loadu_si512(p);
    const auto byte = [&](int i) {  // sign-extends byte i
      return _mm512_cvtepi32_ps(
          _mm512_srai_epi32(_mm512_slli_epi32(fours, static_cast<unsigned>(24 - 8 * i)), 24));
    };
    first = byte(2 * half);
    second = byte(2 * half + 1);
  }
  [[gnu::always_inline]] static void load_i4_pairs(const void* p, int bit, F& first, F& second) {
    const __m512i words = _mm512_loadu_si512(p);
    const auto code = [&](int from) {  // sign-extends four bits
      return _mm512_cvtepi32_ps(
          _mm512_srai_epi32(_mm512_slli_epi32(words, static_cast<unsigned>(28 - from)), 28));
    };
    first = code(bit);
    second = code(bit + 8);
  }
  static F load_u8(const void* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
  }
  // Integer products of int8 K and V: bytes in 32-bit lanes, multiplied with the two bytes of
  // 16-bit queries or weights.
  using Ints = __m512i;
  static Ints zero_ints() { return _mm512_setzero_si512(); }
  static Ints set1_ints(int32_t x) { return _mm512_set1_epi32(x); }
  static Ints load_ints(const void* p) { return _mm512_loadu_si512(p); }
  static Ints to_ints(F x) { return _mm512_cvtps_epi32(x); }
  static F to_float(Ints x) { return _mm512_cvtepi32_ps(x); }
  static Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static int32_t reduce_add_ints(Ints x) { return _mm512_reduce_add_epi32(x); }
  static Ints times_256(Ints x) { return _mm512_slli_epi32(x, 8); }
  static Ints over_256(Ints x) { return _mm512_srai_epi32(x, 8); }
  // Adds 128 to signed bytes, which makes them unsigned.
  static Ints lifted(Ints x) { return _mm512_xor_si512(x, _mm512_set1_epi8(-128)); }
  // Returns sum + the four products of each lane's bytes: unsigned ones of a, signed ones of b. In
  // assembly, since GCC 12 copies most accumulators twice per iteration with the intrinsic.
  static Ints dot_bytes(Ints sum, Ints a, Ints b) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
    return sum;
  }
  // Stores the lowest byte of each lane.
  static void store_bytes(void* p, Ints x) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
  }

  // Converts 64 floats (in 0..32767) of four vectors to 16-bit integers.
  struct Words {
    __m512i first, second;
  };
  static Words to_words(F first, F second, F third, F fourth) {
    return {_mm512_packus_epi32(to_ints(first), to_ints(second)),
            _mm512_packus_epi32(to_ints(third), to_ints(fourth))};
  }
  // Stores words as low and high bytes: 16 groups of four low bytes, then 16 of high bytes. Group
  // t * 4 + u has the lanes t * 4 to t * 4 + 3 of vector u.
  static void store_halves(void* to, Words x) {
    const __m512i low = _mm512_set1_epi16(0xff);
    _mm512_storeu_si512(
        to, _mm512_packus_epi16(_mm512_and_si512(x.first, low), _mm512_and_si512(x.second, low)));
    _mm512_storeu_si512(
        static_cast<std::byte*>(to) + 64,
        _mm512_packus_epi16(_mm512_srli_epi16(x.first, 8), _mm512_srli_epi16(x.second, 8)));
  }
  // Returns the rounded products of words over 2^15.
  static Words times_words(Words a, Words b) {
    return {_mm512_mulhrs_epi16(a.first, b.first), _mm512_mulhrs_epi16(a.second, b.second)};
  }

  // Codes of 4 bits, two to a byte.
  // Loads the factors of 16 tokens, each into both halves of a lane.
  static Ints load_factors(const void* p) {
    const __m512i lanes = _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return _mm512_or_si512(lanes, _mm512_slli_epi32(lanes, 16));
  }
  // eight times the factors, in every byte
  static Ints bias_of(Ints factors) {
    return _mm512_mullo_epi16(factors, _mm512_set1_epi16(0x0808));
  }
  // Returns the low or high codes of all bytes times their tokens' factors. A code plus 8 times a
  // factor stays in its byte, so 16-bit products are those of two codes.
  template <bool High>
  static Ints times_factors(Ints codes, Ints factors, Ints bias) {
    if constexpr (High) codes = _mm512_srli_epi16(codes, 4);
    constexpr int kAndXor = 0x6a;
    const __m512i lifted_codes =
        _mm512_ternarylogic_epi32(codes, _mm512_set1_epi8(15), _mm512_set1_epi8(8), kAndXor);
    return _mm512_sub_epi8(_mm512_mullo_epi16(lifted_codes, factors), bias);
  }
  // Returns 16 times the low or high codes of all bytes.
  template <bool High>
  static Ints sixteenfold(Ints codes) {
    if constexpr (!High) codes = _mm512_slli_epi16(codes, 4);
    return _mm512_and_si512(codes, _mm512_set1_epi8(-16));
  }

  static void load_bf16_pairs(const uint16_t* p, F& first, F& second) {
    const __m512i x = _mm512_loadu_si512(p);
    first = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    second =
        _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static F load_bf16_state(const uint16_t* p) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i upper = _mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
    const __m512i lower = _mm512_castsi256_si512(_mm256_slli_epi32(words, 16));
    return _mm512_castsi512_ps(_mm512_inserti64x4(lower, upper, 1));
  }
  static F store_bf16_state(uint16_t* p, F x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m256i lower = _mm256_srli_epi32(_mm512_castsi512_si256(rounded), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm256_blend_epi16(lower, _mm512_extracti64x4_epi64(rounded, 1), 0xaa));
    return _mm512_castsi512_ps(
        _mm512_and_si512(rounded, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static uint16_t to_f16(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
  static uint16_t to_bf16(float x) {
    const auto bits = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(x))));
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
  // always_inline: otherwise GCC drops calls of a function that only prefetches.
  [[gnu::always_inline]] static void prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F round(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F times_pow2(F a, F n) { return _mm512_scalef_ps(a, n); }
  static F select_less(F a, F b, F yes, F no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  static F keep(uint32_t lanes, F x, F other) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>(lanes), other, x);
  }
  static float reduce_add(F a) { return _mm512_reduce_add_ps(a); }
  static float reduce_max(F a) { return _mm512_reduce_max_ps(a); }
};

static_assert(WholeNumberSimd<Simd>);

}  // namespace
}  // namespace penstock
