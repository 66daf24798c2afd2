// Products of steps of few rows with what lies before and behind them in a layer: one kernel where
// there would be three or four.
#pragma once
#include "ops/cuda/kernels/products.h"
#include "ops/cuda/kernels/rows.h"
#include "ops/cuda/kernels/weight_coding.h"

namespace penstock::cuda {

// As MmaProduct<1>, bit for bit, of up to four weights with the same inputs: x, or its norm, which
// every block takes for itself. Then what `end` says. Grid::x = tiles of 16 outputs of all weights,
// of kGate those of one.
struct LayerProduct {
  static constexpr int kThreads = 128, kTokens = 8, kMostTargets = 4;
  static constexpr int kSumBytes = kThreads / 32 * 128 * 4;
  static constexpr int kMomentsAt = 2 * 512 + 2 * kSumBytes, kScratchAt = kMomentsAt + kTokens * 8;
  static constexpr int kSharedBytes = kScratchAt + 8 * 4;
  enum class End : uint8_t {
    kStore,  // out = the product
    kAdd,    // out += the product * factor
    kGate,   // out = f(the first product) * the second
  };
  struct Target {
    WeightOnDevice w;
    Rows out;
    const float* bias = nullptr;  // [w.rows] or null
    int first_tile = 0;
    StreamCoding coding = StreamCoding::kNone;
  };
  Target targets[kMostTargets];
  int n_targets;
  Rows x;
  bool has_norm;
  RowNorm norm;
  End end;
  float factor;
  ActivationFunction f;
  PENSTOCK_BODY void prefetch(const Thread& t) const;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// The same but for the order of sums, with weights through shared memory (kernels/weight_stream.h),
// which have one of two codings: a kernel of all of them is so large that a GPU waits for its code.
// Without an order of inputs; a norm has one row of weights; weights that are gated are alike. What
// a row gives does not depend on others, nor on Tokens. Grid::x: blocks, which take tiles by turns;
// Grid::y: parts of Tokens rows.
template <int Tokens, StreamCoding One, StreamCoding Other>
struct StreamProduct : LayerProduct {
  static constexpr StreamCoding kOne = One, kOther = Other;
  static constexpr int kThreads = 256, kTokens = Tokens, kBlocks = Tokens == 1 ? 2 : 1;
  // floats, twice: of a tile and the next
  static constexpr int kSums = kThreads / 32 * 16 * Tokens;
  static constexpr int kZerosAt = 0, kMomentsAt = 16, kScratchAt = kMomentsAt + Tokens * 8,
                       kSumsAt = kScratchAt + Tokens * 8 * 4;
  static constexpr int kRingsAt = (kSumsAt + 2 * kSums * 4 + 127) / 128 * 128;
  int n_tiles, n_blocks;  // of all weights; Grid::x
  // of a warp, in shared memory: of all its items, or of some
  int input_bytes;
  static constexpr int shared_bytes(int input_bytes) {
    return kRingsAt + kStreamWarps * (kRingBytes + input_bytes);
  }
  PENSTOCK_BODY void prefetch(const Thread& t) const;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
