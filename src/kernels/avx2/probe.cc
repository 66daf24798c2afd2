#include <immintrin.h>

#include "kernels/probe_kernels.h"

namespace penstock {
namespace {

uint64_t read_streams(const void* data, size_t bytes) {
  const char* base = static_cast<const char*>(data);
  const size_t quarter = bytes / 4;
  __m256i acc[4] = {};
  for (size_t i = 0; i < quarter; i += 64) {
    for (size_t s = 0; s < 4; ++s) {
      const char* line = base + s * quarter + i;
      _mm_prefetch(line + 1152, _MM_HINT_T0);
      acc[s] = _mm256_xor_si256(acc[s], _mm256_load_si256(reinterpret_cast<const __m256i*>(line)));
      acc[s] = _mm256_xor_si256(acc[s], _mm256_load_si256(reinterpret_cast<const __m256i*>(line + 32)));
    }
  }
  const __m256i sum = _mm256_xor_si256(_mm256_xor_si256(acc[0], acc[1]), _mm256_xor_si256(acc[2], acc[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(sum, 0) ^ _mm256_extract_epi64(sum, 2));
}

float compute(int64_t iterations) {
  __m256 factor = _mm256_set1_ps(0.5f);
  __m256 acc[12];
  for (int i = 0; i < 12; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  asm volatile("" : "+x"(factor));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) acc[i] = _mm256_fmadd_ps(acc[i], factor, factor);
  }
  __m256 sum = acc[0];
  for (int i = 1; i < 12; ++i) sum = _mm256_add_ps(sum, acc[i]);
  return _mm256_cvtss_f32(sum);
}

}  // namespace

extern const ProbeKernels kProbeAvx2;
constinit const ProbeKernels kProbeAvx2 = {read_streams, compute, 12.0 * 8 * 2, "AVX2 FP32"};

}  // namespace penstock
