#include "kernels/avx512/tables.h"
#include "kernels/probe_kernels.h"

#include <immintrin.h>

namespace penstock {
namespace {

// Reads `kStreams` streams, with software prefetch kAhead bytes ahead; 0: hardware prefetch only.
template <size_t kStreams, int kAhead>
uint64_t read_streams(const void* data, size_t bytes) {
  const char* base = static_cast<const char*>(data);
  const size_t part = bytes / kStreams;
  __m512i acc[4] = {};
  for (size_t i = 0; i < part; i += 256 / kStreams) {
#pragma GCC unroll 4
    for (size_t n = 0; n < 4; ++n) {
      const char* line = base + n % kStreams * part + i + n / kStreams * 64;
      if constexpr (kAhead > 0) _mm_prefetch(line + kAhead, _MM_HINT_T1);
      acc[n] = _mm512_xor_si512(acc[n], _mm512_load_si512(line));
    }
  }
  const __m512i sum =
      _mm512_xor_si512(_mm512_xor_si512(acc[0], acc[1]), _mm512_xor_si512(acc[2], acc[3]));
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum));
}

float multiply_floats(int64_t iterations) {
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

float multiply_integers(int64_t iterations) {
  __m512i left = _mm512_set1_epi8(5), right = _mm512_set1_epi8(-3);
  __m512i acc[16];
  // distinct, so that the compiler does not merge the accumulators
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_set1_epi32(i);
  asm volatile("" : "+v"(left), "+v"(right));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) acc[i] = _mm512_dpbusd_epi32(acc[i], left, right);
  }
  __m512i sum = acc[0];
  for (int i = 1; i < 16; ++i) sum = _mm512_xor_si512(sum, acc[i]);
  return static_cast<float>(_mm512_reduce_add_epi32(sum));
}

constexpr ReadProbe kReads[] = {read_streams<4, 2304>, read_streams<1, 0>, read_streams<2, 0>};
constexpr ComputeProbe kUnits[] = {
    {"AVX-512 FP32", ComputeProbe::Operand::kFloats, 16.0 * 16 * 2, multiply_floats},
    {"AVX-512 VNNI INT8", ComputeProbe::Operand::kIntegers, 16.0 * 64 * 2, multiply_integers}};

}  // namespace

constinit const ProbeKernels kAvx512ProbeKernels = {kReads, kUnits};

}  // namespace penstock
