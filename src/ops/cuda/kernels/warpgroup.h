// Products by four warps together (wgmma of compute capability 9.0), the second operand in shared
// memory; elsewhere each warp for itself by mma. Warps 4i to 4i + 3 of a block are a group, whose
// calls they make together.
//
// Tiles in shared memory are rows of 64 BF16 or FP16, 128 bytes, of whose pieces of 16 bytes
// neighbours in a column lie in other banks (tile_piece()); they begin at a multiple of 1,024
// bytes.
#pragma once
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

inline constexpr int kTileRowBytes = 128, kTileAlign = 1024;

PENSTOCK_DEVICE int tile_piece(int row, int piece) {
  return row * kTileRowBytes + (piece ^ row % 8) * 16;
}

// Shared memory from its first place on where a tile may be. kTileAlign bytes more than what is
// there are asked for.
PENSTOCK_DEVICE std::byte* first_tile(const Thread& t) {
  const auto at = reinterpret_cast<uintptr_t>(t.shared);
  return t.shared + (kTileAlign - at % kTileAlign) % kTileAlign;
}

// d += a b^T, or without `adds` d = a b^T, of inputs 16 step to 16 step + 15 of the tiles: a has 64
// rows, 16 of each warp, b kN. d is of the warp's rows, in the fragments of mma() of 8 rows of b
// each, one after the other; a in its fragments, or a tile. What is asked for is done later: d and
// a may be read or changed behind wait_for_wgmma(), b and a tile too. begin_wgmma() is before the
// first after d or a in registers were changed; end_wgmma() makes a group of those before it.
template <int kN>
PENSTOCK_DEVICE void wgmma(const Thread& t, float (&d)[kN / 2], const uint32_t (&a)[4],
                           const std::byte* b, int step, bool adds);
enum class TileNumbers : uint8_t { kBF16, kF16 };
template <int kN, TileNumbers kNumbers = TileNumbers::kBF16>
PENSTOCK_DEVICE void wgmma(const Thread& t, float (&d)[kN / 2], const std::byte* a,
                           const std::byte* b, int step, bool adds);
// d += a b, of rows 16 step to 16 step + 15 of b, which has kN columns: tiles of 64, `stride` bytes
// from one to the next.
template <int kN, TileNumbers kNumbers>
PENSTOCK_DEVICE void wgmma_across(const Thread& t, float (&d)[kN / 2], const uint32_t (&a)[4],
                                  const std::byte* b, int step, int stride);
PENSTOCK_DEVICE void begin_wgmma();
PENSTOCK_DEVICE void end_wgmma();
// All groups but the last kMost are done.
template <int kMost>
PENSTOCK_DEVICE void wait_for_wgmma();
// Behind that, before d is read: the compiler may not read it earlier.
template <int kSums>
PENSTOCK_DEVICE void settle_wgmma(float (&d)[kSums]);
// What comes behind this is done behind what makes x, which is not negative: the assembler would
// wait for products first.
PENSTOCK_DEVICE void hold_until_known(float x);
// What this thread wrote into shared memory, or brought there, is there for wgmma, of all threads
// behind a sync.
PENSTOCK_DEVICE void show_wgmma();

// a * b + c, rounded once, of two BF16 in a word each.
PENSTOCK_DEVICE uint32_t multiply_add_bf16_pairs(uint32_t a, uint32_t b, uint32_t c);

// A warp's fragment of a tile of which the warp's rows begin at 16 (warp % 4).
PENSTOCK_DEVICE void load_fragment(const Thread& t, const std::byte* tile, int step,
                                   uint32_t (&a)[4]) {
  for (int i = 0; i < 4; ++i) {
    const int row = 16 * (t.warp() % 4) + t.lane() / 4 + 8 * (i & 1);
    a[i] = *reinterpret_cast<const uint32_t*>(tile + tile_piece(row, 2 * step + (i >> 1)) +
                                              4 * (t.lane() % 4));
  }
}

}  // namespace penstock::cuda

#if defined(__CUDACC__)
#include "ops/cuda/runtime/warpgroup.cuh"
#else
#include "emulation/cuda/warpgroup.h"
#endif
