// 16 float lanes in portable C++: the specification of the wrapper of the same name in every
// instruction set.
#pragma once
#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "kernels/generic/simd_concepts.h"

namespace penstock {
namespace {

struct Simd {
  struct F {
    float v[16];
  };
  static constexpr int kAccumulators = 1;    // vectors of accumulators that a loop may keep live
  static constexpr int kRows = 4;            // attention rows per pass
  static constexpr int kRegisterBytes = 16;  // bytes of a register for transposition

  template <class Fn>
  static F map(Fn&& fn) {
    F r;
    for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
    return r;
  }
  static F zero() { return set1(0.0f); }
  static F set1(float x) {
    return map([&](int) { return x; });
  }
  static F load(const float* p) {
    return map([&](int i) { return p[i]; });
  }
  static F load_n(const float* p, int n) {  // the first n lanes, 0 < n <= 16; the others are zero
    return map([&](int i) { return i < n ? p[i] : 0.0f; });
  }
  static void store(float* p, F x) {
    for (int i = 0; i < 16; ++i) p[i] = x.v[i];
  }
  static void store_n(float* p, F x, int n) {
    for (int i = 0; i < n; ++i) p[i] = x.v[i];
  }
  static F load_f16(const uint16_t* p) {
    return map([&](int i) { return to_float(Half{p[i]}); });
  }
  // Loads two of each four of 16 x 4 int8: the first and the second (half 0), or the third and the
  // fourth (half 1).
  static void load_i8_pairs(const int8_t* p, int half, F& first, F& second) {
    first = map([&](int i) { return static_cast<float>(p[4 * i + 2 * half]); });
    second = map([&](int i) { return static_cast<float>(p[4 * i + 2 * half + 1]); });
  }
  // Loads two signed codes of 4 bits of each of 16 words: those at bits `bit` and bit + 8.
  static void load_i4_pairs(const void* p, int bit, F& first, F& second) {
    const auto* bytes = static_cast<const uint8_t*>(p) + bit / 8;
    const auto code = [&](int i) {
      return static_cast<float>((((bytes[i] >> (bit % 8)) & 15) ^ 8) - 8);
    };
    first = map([&](int i) { return code(4 * i); });
    second = map([&](int i) { return code(4 * i + 1); });
  }
  static F load_u8(const void* p) {
    return map([&](int i) { return static_cast<float>(static_cast<const uint8_t*>(p)[i]); });
  }
  // Loads 16 pairs of BF16: the first elements, and the second ones.
  static void load_bf16_pairs(const uint16_t* p, F& first, F& second) {
    first = map([&](int i) { return to_float(BFloat16{p[2 * i]}); });
    second = map([&](int i) { return to_float(BFloat16{p[2 * i + 1]}); });
  }
  // Loads the lanes of a BF16 state; lanes i and i + 8 are the halves of word i (bf16_place).
  static F load_bf16_state(const uint16_t* p) {
    return map([&](int i) { return to_float(BFloat16{p[i % 8 * 2 + i / 8]}); });
  }
  // Stores a BF16 state, rounded to nearest even; returns the rounded values. REQUIRES: no lane is
  // a NaN with all bits set, which arithmetic never gives.
  static F store_bf16_state(uint16_t* p, F x) {
    for (int i = 0; i < 16; ++i) p[i % 8 * 2 + i / 8] = to_bfloat16(x.v[i]).bits;
    return load_bf16_state(p);
  }
  static uint16_t to_f16(float x) { return to_half(x).bits; }
  static uint16_t to_bf16(float x) { return to_bfloat16(x).bits; }
  static void prefetch(const void*) {}

  static F add(F a, F b) {
    return map([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F sub(F a, F b) {
    return map([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F mul(F a, F b) {
    return map([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F div(F a, F b) {
    return map([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F fma(F a, F b, F c) {  // a * b + c
    return map([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
  }
  // min and max return b if a lane of a is NaN.
  static F min(F a, F b) {
    return map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F max(F a, F b) {
    return map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F round(F a) {  // to the nearest integer
    return map([&](int i) { return std::nearbyint(a.v[i]); });
  }
  static F times_pow2(F a, F n) {  // a * 2^n, n an integer in [-160, 160]
    return map([&](int i) { return std::ldexp(a.v[i], static_cast<int>(n.v[i])); });
  }
  static F select_less(F a, F b, F yes, F no) {  // a < b ? yes : no
    return map([&](int i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
  }
  static F keep(uint32_t lanes, F x, F other) {  // lane i of x if bit i is set, else of other
    return map([&](int i) { return (lanes >> i & 1) != 0 ? x.v[i] : other.v[i]; });
  }
  static float reduce_add(F a) {
    float s[8];
    for (int i = 0; i < 8; ++i) s[i] = a.v[i] + a.v[i + 8];
    for (int i = 0; i < 4; ++i) s[i] += s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
  }
  static float reduce_max(F a) {
    float m = a.v[0];
    for (int i = 1; i < 16; ++i) m = a.v[i] > m ? a.v[i] : m;
    return m;
  }
};

static_assert(VectorSimd<Simd>);

}  // namespace
}  // namespace penstock
