#include <arm_neon.h>

#include "kernels/neon/tables.h"
#include "kernels/probe_kernels.h"

namespace penstock {
namespace {

uint64_t read_streams(const void* data, size_t bytes) {
  const uint8_t* base = static_cast<const uint8_t*>(data);
  const size_t quarter = bytes / 4;
  uint8x16_t acc[4] = {};
  for (size_t i = 0; i < quarter; i += 64) {
    for (size_t s = 0; s < 4; ++s) {
      const uint8_t* line = base + s * quarter + i;
      __builtin_prefetch(line + 1152, 0, 3);
      for (int part = 0; part < 4; ++part) acc[s] = veorq_u8(acc[s], vld1q_u8(line + 16 * part));
    }
  }
  const uint8x16_t sum = veorq_u8(veorq_u8(acc[0], acc[1]), veorq_u8(acc[2], acc[3]));
  return vgetq_lane_u64(vreinterpretq_u64_u8(sum), 0) ^
         vgetq_lane_u64(vreinterpretq_u64_u8(sum), 1);
}

float multiply_floats(int64_t iterations) {
  float32x4_t factor = vdupq_n_f32(0.5f);
  float32x4_t acc[16];
  for (int i = 0; i < 16; ++i) acc[i] = vdupq_n_f32(static_cast<float>(i));
  asm volatile("" : "+w"(factor));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) acc[i] = vfmaq_f32(factor, acc[i], factor);
  }
  float32x4_t sum = acc[0];
  for (int i = 1; i < 16; ++i) sum = vaddq_f32(sum, acc[i]);
  return vaddvq_f32(sum);
}

// Multiplies bytes to 16 bits, and adds them widened in pairs.
float multiply_integers(int64_t iterations) {
  int8x8_t left = vdup_n_s8(5), right = vdup_n_s8(-3);
  int32x4_t acc[8];
  for (int i = 0; i < 8; ++i) acc[i] = vdupq_n_s32(0);
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      asm volatile("" : "+w"(left));  // keeps the compiler from reusing the first product
      acc[i] = vpadalq_s16(acc[i], vmull_s8(left, right));
    }
  }
  int32x4_t sum = acc[0];
  for (int i = 1; i < 8; ++i) sum = veorq_s32(sum, acc[i]);
  return static_cast<float>(vaddvq_s32(sum));
}

constexpr ReadProbe kReads[] = {read_streams};
constexpr ComputeProbe kUnits[] = {
    {"NEON FP32", ComputeProbe::Operand::kFloats, 16.0 * 4 * 2, multiply_floats},
    {"NEON INT8", ComputeProbe::Operand::kIntegers, 8.0 * 8 * 2, multiply_integers}};

}  // namespace

constinit const ProbeKernels kNeonProbeKernels = {kReads, kUnits};

}  // namespace penstock
