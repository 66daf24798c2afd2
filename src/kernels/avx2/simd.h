// 16 float lanes in two registers. scalar/simd.h specifies every function.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "kernels/generic/simd_concepts.h"

namespace penstock {
namespace {

struct Simd {
  struct F {
    __m256 lo, hi;
  };
  static constexpr int kAccumulators = 4;
  static constexpr int kRows = 4;
  static constexpr int kRegisterBytes = 32;

  static F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F set1(float x) {
    const __m256 v = _mm256_set1_ps(x);
    return {v, v};
  }
  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  // All ones in the first n of 8 lanes; n <= 0: in none, n >= 8: in all.
  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F load_n(const float* p, int n) {
    return {_mm256_maskload_ps(p, first(n)),
            n > 8 ? _mm256_maskload_ps(p + 8, first(n - 8)) : _mm256_setzero_ps()};
  }
  static void store(float* p, F x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
  }
  static void store_n(float* p, F x, int n) {
    _mm256_maskstore_ps(p, first(n), x.lo);
    if (n > 8) _mm256_maskstore_ps(p + 8, first(n - 8), x.hi);
  }
  static F load_f16(const uint16_t* p) {
    const auto* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
  }
  [[gnu::always_inline]] static void load_i8_pairs(const int8_t* p, int half, F& first, F& second) {
    const auto* q = reinterpret_cast<const __m256i*>(p);
    const __m256i x = _mm256_loadu_si256(q), y = _mm256_loadu_si256(q + 1);
    const auto byte = [&](__m256i fours, int i) {  // sign-extends byte i
      return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(fours, 24 - 8 * i), 24));
    };
    first = {byte(x, 2 * half), byte(y, 2 * half)};
    second = {byte(x, 2 * half + 1), byte(y, 2 * half + 1)};
  }
  [[gnu::always_inline]] static void load_i4_pairs(const void* p, int bit, F& first, F& second) {
    const auto* q = static_cast<const __m256i*>(p);
    const __m256i x = _mm256_loadu_si256(q), y = _mm256_loadu_si256(q + 1);
    const auto code = [&](__m256i words, int from) {  // sign-extends four bits
      return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 28 - from), 28));
    };
    first = {code(x, bit), code(y, bit)};
    second = {code(x, bit + 8), code(y, bit + 8)};
  }
  static F load_u8(const void* p) {
    const __m128i x = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)))};
  }
  static void load_bf16_pairs(const uint16_t* p, F& first, F& second) {
    const auto* q = reinterpret_cast<const __m256i*>(p);
    const __m256i x = _mm256_loadu_si256(q), y = _mm256_loadu_si256(q + 1);
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    first = {_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
             _mm256_castsi256_ps(_mm256_slli_epi32(y, 16))};
    second = {_mm256_castsi256_ps(_mm256_and_si256(x, upper)),
              _mm256_castsi256_ps(_mm256_and_si256(y, upper))};
  }
  static __m256i upper_halves() { return _mm256_set1_epi32(static_cast<int>(0xffff0000u)); }
  static F load_bf16_state(const uint16_t* p) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(words, upper_halves()))};
  }
  static F store_bf16_state(uint16_t* p, F x) {
    const auto rounded = [](__m256 value) {  // in the upper 16 bits
      const __m256i bits = _mm256_castps_si256(value);
      const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    };
    const __m256i lo = rounded(x.lo), hi = rounded(x.hi);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm256_blend_epi16(_mm256_srli_epi32(lo, 16), hi, 0xaa));
    return {_mm256_castsi256_ps(_mm256_and_si256(lo, upper_halves())),
            _mm256_castsi256_ps(_mm256_and_si256(hi, upper_halves()))};
  }
  static uint16_t to_f16(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
  static uint16_t to_bf16(float x) {
    const auto bits = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(x))));
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

  static F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  static F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  static F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  static F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  static F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
  static F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  static F round(F a) {
    constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
  }
  // Multiplies by two factors, since 2^n may exceed the range of normal numbers.
  static __m256 times_pow2(__m256 a, __m256 n) {
    const __m256i e = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(e, 1),
                  bias = _mm256_set1_epi32(127);
    const __m256i f = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i g = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(e, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(f)), _mm256_castsi256_ps(g));
  }
  static F times_pow2(F a, F n) { return {times_pow2(a.lo, n.lo), times_pow2(a.hi, n.hi)}; }
  static F select_less(F a, F b, F yes, F no) {
    return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
            _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
  }
  static __m256 lane_mask(uint32_t lanes) {  // lane i: all ones if bit i is set
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(
        _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(lanes)), bits), bits));
  }
  static F keep(uint32_t lanes, F x, F other) {
    return {_mm256_blendv_ps(other.lo, x.lo, lane_mask(lanes)),
            _mm256_blendv_ps(other.hi, x.hi, lane_mask(lanes >> 8))};
  }
  static float reduce_add(F a) {
    const __m256 s = _mm256_add_ps(a.lo, a.hi);
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
  }
  static float reduce_max(F a) {
    const __m256 s = _mm256_max_ps(a.lo, a.hi);
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
  }
};

static_assert(VectorSimd<Simd>);

}  // namespace
}  // namespace penstock
