#include <arm_neon.h>

#include "kernels/neondot/tables.h"
#include "kernels/probe_kernels.h"

namespace penstock {
namespace {

float multiply_integers(int64_t iterations) {
  int8x16_t left = vdupq_n_s8(5), right = vdupq_n_s8(-3);
  int32x4_t acc[16];
  // distinct, so that the compiler does not merge the accumulators
  for (int i = 0; i < 16; ++i) acc[i] = vdupq_n_s32(i);
  asm volatile("" : "+w"(left), "+w"(right));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) acc[i] = vdotq_s32(acc[i], left, right);
  }
  int32x4_t sum = acc[0];
  for (int i = 1; i < 16; ++i) sum = veorq_s32(sum, acc[i]);
  return static_cast<float>(vaddvq_s32(sum));
}

constexpr ComputeProbe kUnits[] = {
    {"NEON dot INT8", ComputeProbe::Operand::kIntegers, 16.0 * 16 * 2, multiply_integers}};

}  // namespace

constinit const ProbeKernels kNeonDotProbeKernels = {{}, kUnits};

}  // namespace penstock
