// How long the steps of scans are, and what of a state stays behind each (StateSpaceParams).
#pragma once
#include <algorithm>
#include <cmath>

#include "ops/cpu/host_tensor.h"
#include "ops/cpu/recurrence.h"

namespace penstock {

inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// Steps of RG-LRU. Inputs are divided by them, since scans multiply by steps.
inline void prepare_levels(const DeltaTensors& tensors, const StateSpaceParams& params, int t,
                           bool begins) {
  constexpr float kLeast = 1e-20f;
  const float *rate = data_of(params.rate), *bias = data_of(params.bias);
  float *const dt = f32(tensors.b, t), *const x = f32(tensors.qkv, t);
  for (int h = 0; h < params.n_heads; ++h) {
    const float step = std::max(1.0f / (1.0f + std::exp(-dt[h] - bias[h])), kLeast);
    dt[h] = step;
    x[h] *= (begins ? 1.0f : std::sqrt(-std::expm1(2 * rate[h] * step))) / step;
  }
}

// The step, and how much of the state stays; of scans by channel the step alone.
inline void prepare_step(const DeltaTensors& tensors, const StateSpaceParams& params, int t) {
  const float *rate = data_of(params.rate), *bias = data_of(params.bias);
  float *const decay = f32(tensors.a, t), *const dt = f32(tensors.b, t);
  for (int h = 0; h < params.n_heads; ++h) {
    dt[h] = std::clamp(softplus(bias != nullptr ? dt[h] + bias[h] : dt[h]), params.min_step,
                       params.max_step);
    if (!params.by_channel) decay[h] = std::exp(rate[h] * dt[h]);
  }
}

}  // namespace penstock
