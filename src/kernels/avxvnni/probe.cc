#include "kernels/avxvnni/tables.h"
#include "kernels/probe_kernels.h"

#include <immintrin.h>

namespace penstock {
namespace {

float multiply_integers(int64_t iterations) {
  __m256i left = _mm256_set1_epi8(5), right = _mm256_set1_epi8(-3);
  __m256i acc[12];
  // distinct, so that the compiler does not merge the accumulators
  for (int i = 0; i < 12; ++i) acc[i] = _mm256_set1_epi32(i);
  asm volatile("" : "+x"(left), "+x"(right));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) acc[i] = _mm256_dpbusd_avx_epi32(acc[i], left, right);
  }
  __m256i sum = acc[0];
  for (int i = 1; i < 12; ++i) sum = _mm256_xor_si256(sum, acc[i]);
  return static_cast<float>(_mm256_extract_epi32(sum, 0));
}

constexpr ComputeProbe kUnits[] = {
    {"AVX-VNNI INT8", ComputeProbe::Operand::kIntegers, 12.0 * 32 * 2, multiply_integers}};

}  // namespace

constinit const ProbeKernels kAvxVnniProbeKernels = {{}, kUnits};

}  // namespace penstock
