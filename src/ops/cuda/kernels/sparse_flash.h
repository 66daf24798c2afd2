// Attention to lists of places (kernels/sparse.h) by mma, of caches of 16 and 8 bits.
#pragma once
#include "ops/cuda/kernels/sparse.h"

namespace penstock::cuda {

// A block has up to 16 * kTiles query heads of one kv head of a token, which are the rows of its
// products, and the list's keys by tiles of kTokens, which it gathers in shared memory: for one piece of
// the list, or (kWhole) for all pieces, whose sums are joined in order. Both give the same bits.
// Queries and weights are split into two 16-bit numbers. Softmax and sums are F32. Grid::x = rows *
// n_pieces, or rows; Grid::y = kv heads * tiles().
template <KvCode kCode, int kTiles, bool kWhole>
struct FlashChosen : AttentionOnDevice {
  static constexpr int kWarps = 8, kThreads = kWarps * 32, kHeads = 16 * kTiles,
                       kTokens = 128 / kTiles, kGroups = kTokens / 16, kPiece = 128;
  static constexpr int kMostDim = 576, kMostValueDim = 512;
  static constexpr int kChunks = kMostValueDim / 16 / kWarps;  // of 16 features, of a warp
  static constexpr int kWeightBytes = kTokens * 2 + 16;        // of a row of weights
  ChosenOnDevice chosen;
  int n_pieces = 0;       // kWhole: none
  float* sums = nullptr;  // as of AttendChosenPieces

  static bool suits(const KvLayerOnDevice& layer) {
    return layer.code != KvCode::kF32 && layer.head_dim <= kMostDim &&
           layer.value_dim <= kMostValueDim;
  }
  int tiles() const { return (n_queries + kHeads - 1) / kHeads; }
  int shared_bytes() const {
    const auto row = [](int n) { return (n + 15) / 16 * 32 + 16; };
    const int values = layer.values_at > 0 ? row(layer.value_dim) : 0;
    return row(layer.head_dim) * (kTokens + 2 * kHeads) + values * kTokens +
           2 * kWeightBytes * kHeads + 4 * (2 * kGroups + 5) * kHeads + (2 * 4 + 2 * 8) * kTokens;
  }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
