// The norm of a row, the same bits in whatever kernel it is taken.
#pragma once
#include "ops/cuda/kernels/rows.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

struct RowMoments {
  float middle, factor;  // norm(v) = (v - middle) * factor * weight + bias
};

inline constexpr int kNormLanes = 256, kNormScratch = kNormLanes / kWarp;  // floats in shared memory

// fn(0) + … + fn(n - 1), as 256 threads would take it. By all threads of a block of kThreads.
template <int kThreads, class Fn>
PENSTOCK_DEVICE float sum_of_row(const Thread& t, int n, float* scratch, Fn fn) {
  for (int turn = 0; turn < kNormLanes / kThreads; ++turn) {
    float sum = 0.0f;
    for (int i = t.index + turn * kThreads; i < n; i += kNormLanes) sum += fn(i);
    sum = warp_sum(t, sum);
    if (t.lane() == 0) scratch[t.warp() + turn * (kThreads / kWarp)] = sum;
  }
  t.sync();
  float sum = scratch[0];
  for (int w = 1; w < kNormScratch; ++w) sum += scratch[w];
  t.sync();
  return sum;
}

template <int kThreads>
PENSTOCK_DEVICE RowMoments moments_of_row(const Thread& t, const RowNorm& norm, const float* values, int n,
                                          float* scratch) {
  const bool centered = norm.layer_norm;
  const float sum = sum_of_row<kThreads>(t, n, scratch,
                                         [=](int i) { return centered ? values[i] : values[i] * values[i]; });
  const float mean = sum / static_cast<float>(n);
  if (!centered) return {0.0f, 1.0f / sqrtf(mean + norm.eps)};
  const float squares =
      sum_of_row<kThreads>(t, n, scratch, [=](int i) { return (values[i] - mean) * (values[i] - mean); });
  return {mean, 1.0f / sqrtf(squares / static_cast<float>(n) + norm.eps)};
}

// weight, bias: of the value, if the norm has some.
PENSTOCK_DEVICE float normed_by(const RowNorm& norm, RowMoments moments, float value, float weight,
                                float bias) {
  float v = (value - moments.middle) * moments.factor;
  if (norm.weight != nullptr) v *= weight;
  if (norm.bias != nullptr) v += bias;
  return v;
}

PENSTOCK_DEVICE float normed(const RowNorm& norm, RowMoments moments, int row, int n, int i, float value) {
  const float weight =
      norm.weight != nullptr ? norm.weight[static_cast<int64_t>(row % norm.weight_rows) * n + i] : 1.0f;
  return normed_by(norm, moments, value, weight, norm.bias != nullptr ? norm.bias[i] : 0.0f);
}

}  // namespace penstock::cuda
