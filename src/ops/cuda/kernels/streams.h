// Shares of residual streams, gates by similarity, and heads scaled by position.
#pragma once
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/rows.h"

namespace penstock::cuda {

// Ops::mix_streams. A warp has a row. Grid::x = rows.
struct MixStreams {
  static constexpr int kThreads = 32, kMostStreams = 16;
  Rows z;
  const float *scale, *base;  // [z.cols / n, at most 3], [z.cols]
  int n;
  float eps;
  int iterations;
  float magnitude, write_eps;
  static constexpr int shared_bytes() { return 4 * kMostStreams * kMostStreams; }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Ops::root_gates. Grid::x = rows.
struct RootGates {
  static constexpr int kThreads = 256;
  Rows a, b, out;
  float scale;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Ops::scale_heads_by_position. One thread per element.
struct ScaleHeads {
  static constexpr int kThreads = 256;
  Rows x;
  const float *slopes, *biases;  // [heads]
  int features;                  // of a head
  const BatchOnDevice* batch;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
