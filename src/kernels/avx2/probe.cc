#include "kernels/avx2/tables.h"
#include "kernels/probe_kernels.h"

#include <immintrin.h>

namespace penstock {
namespace {

// Reads `kStreams` streams, with software prefetch kAhead bytes ahead; 0: hardware prefetch only.
template <size_t kStreams, int kAhead>
uint64_t read_streams(const void* data, size_t bytes) {
  const char* base = static_cast<const char*>(data);
  const size_t part = bytes / kStreams;
  __m256i acc[2 * kStreams] = {};
  for (size_t i = 0; i < part; i += 64) {
#pragma GCC unroll 4
    for (size_t s = 0; s < kStreams; ++s) {
      const char* line = base + s * part + i;
      if constexpr (kAhead > 0) _mm_prefetch(line + kAhead, _MM_HINT_T0);
      for (size_t half = 0; half < 2; ++half) {
        __m256i& sum = acc[2 * s + half];
        sum =
            _mm256_xor_si256(sum, _mm256_load_si256(reinterpret_cast<const __m256i*>(line) + half));
      }
    }
  }
  __m256i sum = acc[0];
  for (size_t s = 1; s < 2 * kStreams; ++s) sum = _mm256_xor_si256(sum, acc[s]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sum, 0) | _mm256_extract_epi64(sum, 1) |
                               _mm256_extract_epi64(sum, 2) | _mm256_extract_epi64(sum, 3));
}

float multiply_floats(int64_t iterations) {
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

// Multiplies bytes to pairs in 16 bits, four of which are summed before they are widened, since
// more would overflow.
float multiply_integers(int64_t iterations) {
  constexpr int kTerms = 4, kSums = 3;
  __m256i left = _mm256_set1_epi8(5), right = _mm256_set1_epi8(-3);
  __m256i ones = _mm256_set1_epi16(1);
  __m256i acc[kSums] = {};
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 3
    for (int i = 0; i < kSums; ++i) {
      __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 4
      for (int term = 0; term < kTerms; ++term) {
        asm volatile("" : "+x"(left));  // keeps the compiler from reusing the first product
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(left, right));
      }
      acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(pairs, ones));
    }
  }
  return static_cast<float>(
      _mm256_extract_epi32(_mm256_xor_si256(_mm256_xor_si256(acc[0], acc[1]), acc[2]), 0));
}

constexpr ReadProbe kReads[] = {read_streams<4, 1152>, read_streams<1, 0>, read_streams<2, 0>};
constexpr ComputeProbe kUnits[] = {
    {"AVX2 FP32", ComputeProbe::Operand::kFloats, 12.0 * 8 * 2, multiply_floats},
    {"AVX2 INT8", ComputeProbe::Operand::kIntegers, 3.0 * 4 * 32 * 2, multiply_integers}};

}  // namespace

constinit const ProbeKernels kAvx2ProbeKernels = {kReads, kUnits};

}  // namespace penstock
