// The norm of a row, with the same bits in every kernel.
#pragma once
#include "ops/cuda/kernels/rows.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

struct RowMoments {
  // norm(v) = (v - middle) * factor * weight + bias
  float middle, factor;
};

// number of floats in shared memory
inline constexpr int kNormLanes = 256, kNormScratch = kNormLanes / kWarp;

// Returns fn(0) + … + fn(n - 1) in the order of 256 threads. REQUIRES: called by a whole block.
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
PENSTOCK_DEVICE RowMoments moments_of_row(const Thread& t, const RowNorm& norm, const float* values,
                                          int n, float* scratch) {
  const bool centered = norm.layer_norm;
  const float sum = sum_of_row<kThreads>(
      t, n, scratch, [=](int i) { return centered ? values[i] : values[i] * values[i]; });
  const float mean = sum / static_cast<float>(n);
  if (!centered) return {0.0f, 1.0f / sqrtf(mean + norm.eps)};
  const float squares = sum_of_row<kThreads>(
      t, n, scratch, [=](int i) { return (values[i] - mean) * (values[i] - mean); });
  return {mean, 1.0f / sqrtf(squares / static_cast<float>(n) + norm.eps)};
}

// Moments of up to kRows rows. scratch: kRows * kNormScratch floats.
template <int kRows>
PENSTOCK_DEVICE void moments_of_rows(const Thread& t, const RowNorm& norm, const Rows& x,
                                     float* scratch, RowMoments* moments) {
  const auto sums = [&](auto fn) {
    for (int row = 0; row < kRows; ++row) {
      if (kRows > 1 && row >= x.rows) break;
      const float* const values = x.row(row);
      float sum = 0.0f;
      constexpr int kAtOnce = 8;
      for (int first = t.index; first < x.cols; first += kAtOnce * kNormLanes) {
        float some[kAtOnce];
        for (int i = 0; i < kAtOnce; ++i) {
          const int at = first + i * kNormLanes;
          some[i] = at < x.cols ? values[at] : 0.0f;
        }
        for (int i = 0; i < kAtOnce; ++i)
          if (first + i * kNormLanes < x.cols) sum += fn(row, some[i]);
      }
      sum = warp_sum(t, sum);
      if (t.lane() == 0) scratch[row * kNormScratch + t.warp()] = sum;
    }
    t.sync();
  };
  const auto sum_of = [&](int row) {
    float sum = scratch[row * kNormScratch];
    for (int w = 1; w < kNormScratch; ++w) sum += scratch[row * kNormScratch + w];
    return sum;
  };
  const auto n = static_cast<float>(x.cols);
  const bool own = t.index < kRows && t.index < x.rows;
  sums([&](int, float v) { return norm.layer_norm ? v : v * v; });
  if (own) {
    const float mean = sum_of(t.index) / n;
    moments[t.index] =
        norm.layer_norm ? RowMoments{mean, 0.0f} : RowMoments{0.0f, 1.0f / sqrtf(mean + norm.eps)};
  }
  t.sync();
  if (!norm.layer_norm) return;
  sums([&](int row, float v) { return (v - moments[row].middle) * (v - moments[row].middle); });
  if (own) moments[t.index].factor = 1.0f / sqrtf(sum_of(t.index) / n + norm.eps);
  t.sync();
}

// Normalizes a value. weight, bias: of its column; unused if the norm has none.
PENSTOCK_DEVICE float normed_by(const RowNorm& norm, RowMoments moments, float value, float weight,
                                float bias) {
  float v = (value - moments.middle) * moments.factor;
  if (norm.weight != nullptr) v *= weight;
  if (norm.bias != nullptr) v += bias;
  return v;
}

PENSTOCK_DEVICE float normed(const RowNorm& norm, RowMoments moments, int row, int n, int i,
                             float value) {
  const float weight = norm.weight != nullptr
                           ? norm.weight[static_cast<int64_t>(row % norm.weight_rows) * n + i]
                           : 1.0f;
  return normed_by(norm, moments, value, weight, norm.bias != nullptr ? norm.bias[i] : 0.0f);
}

}  // namespace penstock::cuda
