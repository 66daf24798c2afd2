// Attention of many new tokens of a sequence by products of warp groups (kernels/warpgroup.h), over
// caches of 16 bits: what FlashTiles does (kernels/flash.h), of scores that are neither capped nor
// sloped, where there are such products.
#pragma once
#include "ops/cuda/kernels/attention.h"

namespace penstock::cuda {

// A block has the query rows, of a token and a head each, of some tokens and heads of one kv head;
// a warp has 16 of them. Queries, two tiles of keys and two of values are in shared memory; scores
// of the next keys are made while weights of the ones before are multiplied with their values.
// Grid::x = rows / tokens, Grid::y = kv heads * head_tiles. kDim: the most features of a head, 64,
// 128 or 256.
template <int kDim, KvCode kCode>
struct FlashWide : AttentionOnDevice {
  static constexpr int kWarps = 8, kThreads = kWarps * 32, kRows = kWarps * 16;
  static constexpr int kTokens = kDim > 128 ? 64 : 128;  // of a tile of keys, or values
  static constexpr int kPartBytes = kTokens * kDim * 2, kQueryBytes = kRows * kDim * 2;
  static constexpr int kSharedBytes = 1024 + kQueryBytes + 4 * kPartBytes;

  int heads, head_tiles, tokens;  // of a block, of a kv head, of a block

  explicit FlashWide(const AttentionOnDevice& of) : AttentionOnDevice(of) {
    heads = n_queries < kRows ? n_queries : kRows;
    head_tiles = (n_queries + heads - 1) / heads, tokens = kRows / heads;
  }
  static int shared_bytes() { return kSharedBytes; }
  // For what it does not there is FlashTiles. The largest product is the largest score where the
  // scale is positive.
  static bool suits(const AttentionOnDevice& of) {
    return of.scale > 0.0f && of.softcap <= 0.0f && of.slopes == nullptr && of.block_shift >= 0;
  }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
