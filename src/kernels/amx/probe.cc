#include <immintrin.h>

#include "kernels/probe_kernels.h"

namespace penstock {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

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

// 2 x 2 tiles: four accumulators, two A and two B operands. Operands are not zero: zeros flatter the unit.
float compute(int64_t iterations) {
  const TileConfig config;
  alignas(64) uint16_t operand[16 * 32];
  alignas(64) float out[16 * 16];
  for (int i = 0; i < 16 * 32; ++i) operand[i] = static_cast<uint16_t>(0x3c00 + (i * 37) % 512);
  const long stride = 64;
  asm volatile(
      "ldtilecfg (%0)\n"
      "tileloadd (%1,%2,1), %%tmm4\n tileloadd (%1,%2,1), %%tmm5\n"
      "tileloadd (%1,%2,1), %%tmm6\n tileloadd (%1,%2,1), %%tmm7\n"
      "tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3\n"
      :
      : "r"(&config), "r"(operand), "r"(stride)
      : "memory");
  for (int64_t n = 0; n < iterations; ++n) {
    asm volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n" ::
            : "memory");
  }
  asm volatile("tilestored %%tmm0, (%0,%1,1)\n tilerelease\n" : : "r"(out), "r"(stride) : "memory");
  return out[0];
}

}  // namespace

extern const ProbeKernels kProbeAmx;
constinit const ProbeKernels kProbeAmx = {read_streams, compute, 4.0 * 16 * 16 * 32 * 2, "AMX BF16"};

}  // namespace penstock
