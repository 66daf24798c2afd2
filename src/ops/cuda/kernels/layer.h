// Products of steps of few rows with what lies before and behind them in a layer: one kernel where there would be three or four.
#pragma once
#include "ops/cuda/kernels/products.h"
#include "ops/cuda/kernels/rows.h"
#include "ops/cuda/kernels/weight.h"

namespace penstock::cuda {

// As MmaProduct<1>, bit for bit, of up to four weights with the same inputs: x, or its norm, which every block takes for itself.
// Then what `end` says. Grid::x = tiles of 16 outputs of all weights, of kGate those of one.
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

// The same, bit for bit, of up to Tokens rows, with weights through shared memory (kernels/weight_stream.h). Of what
// stream_coding() knows, the same for both of kGate, without an order of inputs; a norm has one row of weights.
template <int Tokens, bool Gates>
struct StreamProduct : LayerProduct {
  static constexpr int kTokens = Tokens, kWeights = Gates ? 2 : 1;                          // Gates: of kGate
  static constexpr int kRingBytes = kWeights * 8192, kPairsBytes = (2 * Tokens + 1) * 288;  // of a warp
  static constexpr int kRingsAt = (LayerProduct::kSharedBytes + 127) / 128 * 128;
  static constexpr int kPairsAt = kRingsAt + kThreads / 32 * kRingBytes;
  static constexpr int kSharedBytes = kPairsAt + kThreads / 32 * kPairsBytes;
  PENSTOCK_BODY void prefetch(const Thread& t) const;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
