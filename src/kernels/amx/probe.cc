#include <immintrin.h>

#include <cstdint>

#include "kernels/probe_kernels.h"

namespace penstock {
namespace {

#include "kernels/amx/tiles.h"
#include "kernels/avx512/read_streams.h"

// 2 x 2 tiles: four accumulators, two A and two B operands. Operands are not zero: zeros flatter the unit.
float compute(int64_t iterations) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
  const TileScope scope(config);
  alignas(64) uint16_t operand[16 * 32];
  alignas(64) float out[16 * 16];
  for (int i = 0; i < 16 * 32; ++i) operand[i] = static_cast<uint16_t>(0x3c00 + (i * 37) % 512);
  tile_load<4>(operand, 64), tile_load<5>(operand, 64), tile_load<6>(operand, 64), tile_load<7>(operand, 64);
  tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
  for (int64_t n = 0; n < iterations; ++n) {
    tile_dot_bf16<0, 4, 6>(), tile_dot_bf16<1, 4, 7>();
    tile_dot_bf16<2, 5, 6>(), tile_dot_bf16<3, 5, 7>();
  }
  tile_store<0>(out, 64);
  return out[0];
}

}  // namespace

extern const ProbeKernels kProbeAmx;
constinit const ProbeKernels kProbeAmx = {read_streams, compute, 4.0 * 16 * 16 * 32 * 2, "AMX BF16"};

}  // namespace penstock
