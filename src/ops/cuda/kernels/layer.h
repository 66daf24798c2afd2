// Fused products of steps of few rows: one kernel computes the norm before, the products, and the
// operation after them in a layer.
#pragma once
#include "ops/cuda/kernels/products.h"
#include "ops/cuda/kernels/rows.h"
#include "ops/cuda/kernels/weight_coding.h"

namespace penstock::cuda {

// Products of up to four weights with the same inputs, x or its norm (which every block computes
// itself), bit for bit as MmaProduct<1>; `end` says what is done with them. Grid::x = tiles of 16
// outputs of all weights; for kGate, of one weight.
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

// As LayerProduct, but with weights streamed through shared memory (kernels/weight_stream.h) and
// another order of sums. The weights have one of two codings, since a kernel for all codings would
// be too large for the instruction cache. REQUIRES: no input order; norms have one row of weights;
// gated weights have one layout. A row's result depends neither on other rows nor on Tokens.
// Grid::x: blocks, which take tiles round-robin; Grid::y: groups of Tokens rows.
template <int Tokens, StreamCoding One, StreamCoding Other>
struct StreamProduct : LayerProduct {
  static constexpr StreamCoding kOne = One, kOther = Other;
  static constexpr int kThreads = 256, kTokens = Tokens, kBlocks = Tokens == 1 ? 2 : 1;
  // floats of a tile's sums; double-buffered
  static constexpr int kSums = kThreads / 32 * 16 * Tokens;
  static constexpr int kZerosAt = 0, kMomentsAt = 16, kScratchAt = kMomentsAt + Tokens * 8,
                       kSumsAt = kScratchAt + Tokens * 8 * 4;
  static constexpr int kRingsAt = (kSumsAt + 2 * kSums * 4 + 127) / 128 * 128;
  int n_tiles, n_blocks;  // of all weights; Grid::x
  // shared memory of a warp's inputs: all its items, or some
  int input_bytes;
  static constexpr int shared_bytes(int input_bytes) {
    return kRingsAt + kStreamWarps * (kRingBytes + input_bytes);
  }
  PENSTOCK_BODY void prefetch(const Thread& t) const;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
