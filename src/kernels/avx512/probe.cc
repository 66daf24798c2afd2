#include <immintrin.h>

#include "kernels/probe_kernels.h"

namespace penstock {
namespace {

uint64_t read_streams(const void* data, size_t bytes) {
  const char* base = static_cast<const char*>(data);
  const size_t quarter = bytes / 4;
  __m512i acc[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  for (size_t i = 0; i < quarter; i += 64) {
    for (size_t s = 0; s < 4; ++s) {
      const char* line = base + s * quarter + i;
      _mm_prefetch(line + 2304, _MM_HINT_T1);
      acc[s] = _mm512_xor_si512(acc[s], _mm512_load_si512(line));
    }
  }
  const __m512i sum = _mm512_xor_si512(_mm512_xor_si512(acc[0], acc[1]), _mm512_xor_si512(acc[2], acc[3]));
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum));
}

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
