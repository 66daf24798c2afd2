#include "kernels/avx512bf16/tables.h"
#include "kernels/probe_kernels.h"

#include <immintrin.h>

namespace penstock {
namespace {

float multiply_short_floats(int64_t iterations) {
  __m512i bits = _mm512_set1_epi16(0x3f00);  // 0.5
  __m512 acc[16];
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  asm volatile("" : "+v"(bits));
  const auto factor = reinterpret_cast<__m512bh>(bits);
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) acc[i] = _mm512_dpbf16_ps(acc[i], factor, factor);
  }
  __m512 sum = acc[0];
  for (int i = 1; i < 16; ++i) sum = _mm512_add_ps(sum, acc[i]);
  return _mm512_reduce_add_ps(sum);
}

constexpr ComputeProbe kUnits[] = {
    {"AVX-512 BF16", ComputeProbe::Operand::kFloats, 16.0 * 32 * 2, multiply_short_floats}};

}  // namespace

constinit const ProbeKernels kAvx512Bf16ProbeKernels = {{}, kUnits};

}  // namespace penstock
