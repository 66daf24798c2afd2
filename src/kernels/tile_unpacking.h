// When products of many rows by tiles unpack weights: before the products of a slice, or between those of the slice before. The
// results are the same bits; which is faster is measured once, on the machine.
#pragma once
#include <cstdint>

#include "base/result.h"
#include "kernels/kernel_table.h"

namespace penstock {

enum class UnpackTime : uint8_t { kBefore, kBetween };

struct TileUnpacking {
  UnpackTime time = UnpackTime::kBefore;
  bool measured = false;  // else there is no choice, PENSTOCK_UNPACK has made it, or the tiles are emulated
  // Operations per second of one thread, 256 rows times Q4_0; 0 where not measured.
  double before = 0, between = 0;
};

// Of a table. Measures in half a millisecond what the process has not measured yet. PENSTOCK_UNPACK=before or between forces
// either, auto does not. Error: kInvalidArgument where it is anything else.
Result<TileUnpacking> tile_unpacking(const KernelTable& kernels);

bool has_both_unpackings(const KernelTable& kernels);

// Measures whatever the environment says, of tiles that have both.
TileUnpacking measure_unpacking(const TileKernels& tiles);

}  // namespace penstock
