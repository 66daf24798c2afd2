// Time at which products of many rows by tiles unpack weights: before the products of a slice, or
// between the products of the previous slice. The results are the same bits; which is faster is
// measured once on the machine.
#pragma once
#include <cstdint>

#include "base/result.h"
#include "kernels/kernel_table.h"

namespace penstock {

enum class UnpackTime : uint8_t { kBefore, kBetween };

struct TileUnpacking {
  UnpackTime time = UnpackTime::kBefore;
  // false: there is no choice, or PENSTOCK_UNPACK made it, or the tiles are emulated
  bool measured = false;
  // Operations per second of one thread, 256 rows times Q4_0; 0 where not measured.
  double before = 0, between = 0;
};

// Returns the choice for a table. The first call measures for half a millisecond.
// PENSTOCK_UNPACK=before or between overrides it, auto does not. Error: kInvalidArgument for any
// other value.
Result<TileUnpacking> tile_unpacking(const KernelTable& kernels);

bool has_both_unpackings(const KernelTable& kernels);

// Measures both, independent of the environment. REQUIRES: the tiles have both.
TileUnpacking measure_unpacking(const TileKernels& tiles);

}  // namespace penstock
