#include <immintrin.h>

#include "kernels/probe_kernels.h"

namespace penstock {
namespace {

#include "kernels/avx512/read_streams.h"

float compute(int64_t iterations) {
  __m512 factor = _mm512_set1_ps(0.5f);
  __m512 acc[16];
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  asm volatile("" : "+v"(factor));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) acc[i] = _mm512_fmadd_ps(acc[i], factor, factor);
  }
  __m512 sum = acc[0];
  for (int i = 1; i < 16; ++i) sum = _mm512_add_ps(sum, acc[i]);
  return _mm512_reduce_add_ps(sum);
}

}  // namespace

extern const ProbeKernels kProbeAvx512;
constinit const ProbeKernels kProbeAvx512 = {read_streams, compute, 16.0 * 16 * 2, "AVX-512 FP32"};

}  // namespace penstock
