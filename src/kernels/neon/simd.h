// 16 float lanes in four registers. scalar/simd.h specifies every function.
#pragma once
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernels/generic/simd_concepts.h"

namespace penstock {
namespace {

struct Simd {
  struct F {
    float32x4_t v[4];
  };
  static constexpr int kAccumulators = 4;
  static constexpr int kRows = 4;
  static constexpr int kRegisterBytes = 16;

  template <class Fn>
  static F each(Fn&& fn) {
    return {{fn(0), fn(1), fn(2), fn(3)}};
  }
  static F zero() { return set1(0.0f); }
  static F set1(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return {{v, v, v, v}};
  }
  static F load(const float* p) {
    return each([&](int i) { return vld1q_f32(p + 4 * i); });
  }
  static F load_n(const float* p, int n) {
    float lanes[16] = {};
    __builtin_memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
    return load(lanes);
  }
  static void store(float* p, F x) {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.v[i]);
  }
  static void store_n(float* p, F x, int n) {
    float lanes[16];
    store(lanes, x);
    __builtin_memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
  }
  static F load_f16(const uint16_t* p) {
    return each([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
  }
  static void load_i8_pairs(const int8_t* p, int half, F& first, F& second) {
    const auto byte = [&](int vector, int i) {  // sign-extends byte i
      const int32x4_t fours = vreinterpretq_s32_s8(vld1q_s8(p + 16 * vector));
      return vcvtq_f32_s32(vshrq_n_s32(vshlq_s32(fours, vdupq_n_s32(24 - 8 * i)), 24));
    };
    first = each([&](int vector) { return byte(vector, 2 * half); });
    second = each([&](int vector) { return byte(vector, 2 * half + 1); });
  }
  static void load_i4_pairs(const void* p, int bit, F& first, F& second) {
    const auto code = [&](int vector, int from) {  // sign-extends four bits
      const int32x4_t words =
          vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t*>(p) + 16 * vector));
      return vcvtq_f32_s32(vshrq_n_s32(vshlq_s32(words, vdupq_n_s32(28 - from)), 28));
    };
    first = each([&](int vector) { return code(vector, bit); });
    second = each([&](int vector) { return code(vector, bit + 8); });
  }
  static F load_u8(const void* p) {
    const uint8x16_t x = vld1q_u8(static_cast<const uint8_t*>(p));
    const uint16x8_t low = vmovl_u8(vget_low_u8(x)), high = vmovl_u8(vget_high_u8(x));
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))),
             vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
             vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))),
             vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))}};
  }
  static void load_bf16_pairs(const uint16_t* p, F& first, F& second) {
    const auto pairs = [&](int i) { return vreinterpretq_u32_u16(vld1q_u16(p + 8 * i)); };
    first = each([&](int i) { return vreinterpretq_f32_u32(vshlq_n_u32(pairs(i), 16)); });
    second = each([&](int i) {
      return vreinterpretq_f32_u32(vandq_u32(pairs(i), vdupq_n_u32(0xffff0000u)));
    });
  }
  static F load_bf16_state(const uint16_t* p) {
    return each([&](int i) {
      const uint32x4_t words = vreinterpretq_u32_u16(vld1q_u16(p + 8 * (i % 2)));
      return vreinterpretq_f32_u32(i < 2 ? vshlq_n_u32(words, 16)
                                         : vandq_u32(words, vdupq_n_u32(0xffff0000u)));
    });
  }
  static F store_bf16_state(uint16_t* p, F x) {
    const F rounded = each([&](int i) {
      const uint32x4_t bits = vreinterpretq_u32_f32(x.v[i]);
      const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
      const uint32x4_t up = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
      return vreinterpretq_f32_u32(vandq_u32(up, vdupq_n_u32(0xffff0000u)));
    });
    for (int i = 0; i < 2; ++i) {
      const uint32x4_t words = vsriq_n_u32(vreinterpretq_u32_f32(rounded.v[i + 2]),
                                           vreinterpretq_u32_f32(rounded.v[i]), 16);
      vst1q_u16(p + 8 * i, vreinterpretq_u16_u32(words));
    }
    return rounded;
  }
  static uint16_t to_f16(float x) {
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
  }
  static uint16_t to_bf16(float x) {
    const uint32_t bits = vgetq_lane_u32(vreinterpretq_u32_f32(vdupq_n_f32(x)), 0);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
  static void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

  static F add(F a, F b) {
    return each([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
  }
  static F sub(F a, F b) {
    return each([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
  }
  static F mul(F a, F b) {
    return each([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
  }
  static F div(F a, F b) {
    return each([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
  }
  static F fma(F a, F b, F c) {
    return each([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  // Not fmin and fmax, which treat NaN differently.
  static F min(F a, F b) { return select_less(a, b, a, b); }
  static F max(F a, F b) { return select_less(b, a, a, b); }
  static F round(F a) {
    return each([&](int i) { return vrndnq_f32(a.v[i]); });
  }
  // Multiplies by two factors, since 2^n may exceed the range of normal numbers.
  static float32x4_t times_pow2(float32x4_t a, float32x4_t n) {
    const int32x4_t e = vcvtq_s32_f32(n), half = vshrq_n_s32(e, 1), bias = vdupq_n_s32(127);
    const int32x4_t f = vshlq_n_s32(vaddq_s32(half, bias), 23);
    const int32x4_t g = vshlq_n_s32(vaddq_s32(vsubq_s32(e, half), bias), 23);
    return vmulq_f32(vmulq_f32(a, vreinterpretq_f32_s32(f)), vreinterpretq_f32_s32(g));
  }
  static F times_pow2(F a, F n) {
    return each([&](int i) { return times_pow2(a.v[i], n.v[i]); });
  }
  static F select_less(F a, F b, F yes, F no) {
    return each([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), yes.v[i], no.v[i]); });
  }
  static F keep(uint32_t lanes, F x, F other) {
    const uint32x4_t all = vdupq_n_u32(lanes), four = {1, 2, 4, 8};
    const uint32x4_t bits[4] = {four, vshlq_n_u32(four, 4), vshlq_n_u32(four, 8),
                                vshlq_n_u32(four, 12)};
    return each([&](int i) { return vbslq_f32(vtstq_u32(all, bits[i]), x.v[i], other.v[i]); });
  }
  static float reduce_add(F a) {
    const float32x4_t s = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
    const float32x2_t t = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(t, 0) + vget_lane_f32(t, 1);
  }
  static float reduce_max(F a) {
    const F m = max(a, {{a.v[2], a.v[3], a.v[2], a.v[3]}});
    return vmaxvq_f32(vmaxq_f32(m.v[0], m.v[1]));
  }
};

static_assert(VectorSimd<Simd>);

}  // namespace
}  // namespace penstock
