// Attention of many new tokens of a sequence, over caches of 16 bits, by products of warp groups
// (kernels/warpgroup.h): as FlashTiles (kernels/flash.h), but for devices with such products and
// for scores without softcap and slopes.
#pragma once
#include "ops/cuda/kernels/attention.h"

namespace penstock::cuda {

// A block computes query rows (one per token and head) of some tokens and heads of one kv head;
// a warp has 16 rows. Shared memory holds the queries, two tiles of keys and two of values; the
// scores of the next keys are computed while the current weights multiply their values. Grid::x
// = rows / tokens, Grid::y = kv heads * head_tiles. kDim: maximum features of a head: 64, 128,
// 256.
template <int kDim, KvCode kCode>
struct FlashWide : AttentionOnDevice {
  static constexpr int kWarps = 8, kThreads = kWarps * 32, kRows = kWarps * 16;
  static constexpr int kTokens = kDim > 128 ? 64 : 128;  // per tile of keys or values
  static constexpr int kPartBytes = kTokens * kDim * 2, kQueryBytes = kRows * kDim * 2;
  static constexpr int kSharedBytes = 1024 + kQueryBytes + 4 * kPartBytes;

  int heads, head_tiles, tokens;  // per block, per kv head, per block

  explicit FlashWide(const AttentionOnDevice& of) : AttentionOnDevice(of) {
    heads = n_queries < kRows ? n_queries : kRows;
    head_tiles = (n_queries + heads - 1) / heads, tokens = kRows / heads;
  }
  static int shared_bytes() { return kSharedBytes; }
  // Whether the kernel computes such attention; otherwise FlashTiles does. A positive scale is
  // needed, so that the largest product gives the largest score.
  static bool suits(const AttentionOnDevice& of) {
    return of.scale > 0.0f && of.softcap <= 0.0f && of.slopes == nullptr && of.block_shift >= 0;
  }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
