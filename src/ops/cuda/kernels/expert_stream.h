// Products of experts that have few rows each, with weights streamed through shared memory
// (kernels/weight_stream.h). Which experts have rows is read on the device.
#pragma once
#include "ops/cuda/kernels/products.h"
#include "ops/cuda/kernels/weight_coding.h"

namespace penstock::cuda {

// Rows sorted by expert (kernels/moe.h) in groups of one expert each, per_tile of which are a tile.
// A group's rows with a source are its first ones.
struct ExpertGroups {
  const int32_t* tile_experts;  // none: below 0, or n_experts and more
  // [most][rows of a group] choices, below 0: none; null: group i is choice i
  const int32_t* sources;
  const int32_t* n_tiles;  // on the device; null: there are `most` groups
  int most, per_tile, n_experts, n_active;
};

// out[row] = the product of the row with the weight of its expert; with `ups`, f(that) * the product
// with the other weight. Rows of experts without a weight are not written. All weights have one
// layout (`shape`). Grid::x: blocks, which share the tiles of 16 outputs of all groups.
//
// Teams of n_warps of a block's eight warps multiply one tile each, so that matrices with few inputs
// keep all warps busy. A row's result depends neither on other rows nor on Tokens.
template <int Tokens, StreamCoding Of>
struct ExpertStream {
  static constexpr StreamCoding kOf = Of;
  static constexpr int kThreads = 256, kTokens = Tokens, kBlocks = Tokens == 1 ? 2 : 1;
  // floats of the warps' sums; double-buffered
  static constexpr int kSums = kThreads / 32 * 16 * Tokens;
  static constexpr int kZerosAt = 0, kSumsAt = 16;
  static constexpr int kRingsAt = (kSumsAt + 2 * kSums * 4 + 127) / 128 * 128;
  static constexpr int shared_bytes(int input_bytes) {
    return kRingsAt + kStreamWarps * (kRingBytes + input_bytes);
  }
  const ExpertWeight *experts, *ups;  // [n_experts]; ups: or null
  WeightOnDevice shape;
  ExpertGroups groups;
  Rows x, out;
  bool by_token;  // x has a row for each token, not for each row of a group
  ActivationFunction f;
  int n_warps, n_teams;  // n_warps * n_teams = kStreamWarps
  int n_sets;            // of n_teams tiles, of an expert
  int input_bytes;       // shared memory of a warp's inputs: all its items, or some
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
