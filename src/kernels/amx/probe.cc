#include "kernels/amx/tables.h"
#include "kernels/probe_kernels.h"

#include <immintrin.h>

#include <cstdint>

namespace penstock {
namespace {

#include "kernels/amx/tiles.h"

// 2 x 2 tiles: four accumulators, two A and two B operands. Operands are not zero, since AMX is
// faster with zeros.
template <class Multiply>
[[gnu::always_inline]] inline float run_products(int64_t iterations, Multiply&& four_products) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
  const TileScope scope(config);
  alignas(64) uint16_t operand[16 * 32];
  alignas(64) float out[16 * 16];
  for (int i = 0; i < 16 * 32; ++i) operand[i] = static_cast<uint16_t>(0x3c00 + (i * 37) % 512);
  tile_load<4>(operand, 64), tile_load<5>(operand, 64), tile_load<6>(operand, 64),
      tile_load<7>(operand, 64);
  tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
  for (int64_t n = 0; n < iterations; ++n) four_products();
  tile_store<0>(out, 64);
  return out[0];
}

float multiply_short_floats(int64_t iterations) {
  return run_products(iterations, [] {
    tile_dot_bf16<0, 4, 6>(), tile_dot_bf16<1, 4, 7>();
    tile_dot_bf16<2, 5, 6>(), tile_dot_bf16<3, 5, 7>();
  });
}

float multiply_integers(int64_t iterations) {
  return run_products(iterations, [] {
    tile_dot_int8<0, 4, 6>(), tile_dot_int8<1, 4, 7>();
    tile_dot_int8<2, 5, 6>(), tile_dot_int8<3, 5, 7>();
  });
}

constexpr ComputeProbe kUnits[] = {
    {"AMX BF16", ComputeProbe::Operand::kFloats, 4.0 * 16 * 16 * 32 * 2, multiply_short_floats},
    {"AMX INT8", ComputeProbe::Operand::kIntegers, 4.0 * 16 * 16 * 64 * 2, multiply_integers}};

}  // namespace

constinit const ProbeKernels tiles_here::kProbeKernels = {{}, kUnits};

}  // namespace penstock
