// Products by a warp group (wgmma of compute capability 9.0), with the second operand in shared
// memory; without wgmma by mma of each warp. Warps 4i to 4i + 3 of a block are a group. REQUIRES:
// all warps of a group make the same calls.
//
// Tiles in shared memory are rows of 64 BF16 or FP16 (128 bytes). Their 16-byte pieces are swizzled
// (tile_piece()), so that a column's pieces are in different banks. Tiles begin at multiples of
// 1,024 bytes.
#pragma once
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

inline constexpr int kTileRowBytes = 128, kTileAlign = 1024;

PENSTOCK_DEVICE int tile_piece(int row, int piece) {
  return row * kTileRowBytes + (piece ^ row % 8) * 16;
}

// Returns the first address in shared memory at which a tile may begin. Launches reserve up to
// kTileAlign extra bytes for it.
PENSTOCK_DEVICE std::byte* first_tile(const Thread& t) {
  const auto at = reinterpret_cast<uintptr_t>(t.shared);
  return t.shared + (kTileAlign - at % kTileAlign) % kTileAlign;
}

// d += a b^T, or d = a b^T without `adds`, for inputs 16 step to 16 step + 15 of the tiles: a has
// 64 rows, 16 of each warp, and b has kN. d: the warp's rows, as fragments of mma() per 8 rows of
// b; a: fragments, or a tile. Asynchronous: REQUIRES: d, a and b are neither read nor changed
// before wait_for_wgmma(). begin_wgmma() must precede the first call after registers of d or a
// changed; end_wgmma() closes a group of calls.
template <int kN>
PENSTOCK_DEVICE void wgmma(const Thread& t, float (&d)[kN / 2], const uint32_t (&a)[4],
                           const std::byte* b, int step, bool adds);
enum class TileNumbers : uint8_t { kBF16, kF16 };
template <int kN, TileNumbers kNumbers = TileNumbers::kBF16>
PENSTOCK_DEVICE void wgmma(const Thread& t, float (&d)[kN / 2], const std::byte* a,
                           const std::byte* b, int step, bool adds);
// d += a b, for rows 16 step to 16 step + 15 of b, which has kN columns in tiles of 64 that are
// `stride` bytes apart.
template <int kN, TileNumbers kNumbers>
PENSTOCK_DEVICE void wgmma_across(const Thread& t, float (&d)[kN / 2], const uint32_t (&a)[4],
                                  const std::byte* b, int step, int stride);
PENSTOCK_DEVICE void begin_wgmma();
PENSTOCK_DEVICE void end_wgmma();
// Waits for all but the last kMost groups.
template <int kMost>
PENSTOCK_DEVICE void wait_for_wgmma();
// Keeps compilers from reading d earlier. REQUIRES: called after wait_for_wgmma().
template <int kSums>
PENSTOCK_DEVICE void settle_wgmma(float (&d)[kSums]);
// Orders later code after the computation of x, which is not negative. Without it the assembler
// would move a wait for products ahead of that computation.
PENSTOCK_DEVICE void hold_until_known(float x);
// Makes this thread's writes and copies to shared memory visible to wgmma; for those of other
// threads, a sync must follow.
PENSTOCK_DEVICE void show_wgmma();

// Returns a * b + c, rounded once, of two BF16 in a word each.
PENSTOCK_DEVICE uint32_t multiply_add_bf16_pairs(uint32_t a, uint32_t b, uint32_t c);

// Loads a warp's A fragment of a tile; the warp's rows begin at 16 (warp % 4).
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
