#include "ops/cuda/kernels/recurrence.h"

#include "ops/cuda/kernels/state_rows.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {
namespace {

PENSTOCK_DEVICE float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

}  // namespace

PENSTOCK_BODY void CausalConv::operator()(const Thread& t) const {
  const int channel = t.y * kThreads + t.index, channels = x.cols;
  if (t.x >= batch->n_seqs || channel >= channels) return;
  const StateRows rows(*batch, states, t.x);
  const float* const weights = weight + channel;
  states.with_values([&](auto* values) {
    for (int i = 0; i < rows.n; ++i) {
      const auto* const before = values + rows.before(states, i) + channel;
      auto* const after = values + rows.after(states, i) + channel;
      const float own = x.row(rows.first + i)[channel];
      float sum = bias != nullptr ? bias[channel] : 0.0f;
      // The tail shifts by one token while it is read.
      for (int k = 0; k + 1 < taps; ++k) {
        const float input =
            rows.starts(i) ? 0.0f : widened(before[static_cast<int64_t>(k) * channels]);
        sum += weights[static_cast<int64_t>(k) * channels] * input;
        if (k > 0) put(input, after[static_cast<int64_t>(k - 1) * channels]);
      }
      if (taps > 1) put(own, after[static_cast<int64_t>(taps - 2) * channels]);
      out.row(rows.first + i)[channel] =
          sum + weights[static_cast<int64_t>(taps - 1) * channels] * own;
    }
  });
}
PENSTOCK_KERNEL(CausalConv)

PENSTOCK_BODY void PrepareDelta::operator()(const Thread& t) const {
  if (t.x >= batch->n_tokens) return;
  constexpr float kUnitEps = 1e-6f;  // added to the sum of squares
  float* const row = qkv.row(t.x);
  const float root = 1.0f / sqrtf(static_cast<float>(key_dim));
  for (int head = t.warp(); head < 2 * n_key_heads; head += kThreads / kWarp) {
    float* const values = row + head * key_dim;
    float squares = 0.0f;
    for (int i = t.lane(); i < key_dim; i += kWarp) squares += values[i] * values[i];
    const float factor =
        (head < n_key_heads ? root : 1.0f) / sqrtf(warp_sum(t, squares) + kUnitEps);
    for (int i = t.lane(); i < key_dim; i += kWarp) values[i] *= factor;
  }
  float *const decays = a.row(t.x), *const betas = b.row(t.x);
  for (int i = t.index; i < a.cols; i += kThreads) {
    const float of_head = rate[i / decays_per_head], x = decays[i] + bias[i];
    decays[i] = expf(lowest_log_decay < 0.0f ? lowest_log_decay / (1.0f + expf(of_head * x))
                                             : of_head * softplus(x));
  }
  for (int i = t.index; i < b.cols; i += kThreads)
    betas[i] = write_factor / (1.0f + expf(-betas[i]));
}
PENSTOCK_KERNEL(PrepareDelta)

PENSTOCK_BODY void PrepareSteps::operator()(const Thread& t) const {
  if (t.x >= batch->n_tokens) return;
  for (int h = t.index; h < dt.cols; h += kThreads) {
    float& step = dt.row(t.x)[h];
    if (level_rates != nullptr) {
      constexpr float kLeast = 1e-20f;
      step = fmaxf(1.0f / (1.0f + expf(-step - bias[h])), kLeast);
      const bool begins = batch->positions[t.x] == 0;
      x.row(t.x)[h] *= (begins ? 1.0f : sqrtf(-expm1f(2 * level_rates[h] * step))) / step;
      continue;
    }
    const float unbounded = softplus(bias != nullptr ? step + bias[h] : step);
    step = fminf(fmaxf(unbounded, min_step), max_step);
    if (rate != nullptr) decay.row(t.x)[h] = expf(rate[h] * step);
  }
}
PENSTOCK_KERNEL(PrepareSteps)

PENSTOCK_BODY void ScanStates::operator()(const Thread& t) const {
  const int parts = (value_dim + kThreads - 1) / kThreads;
  const int head = t.y / parts, feature = t.y % parts * kThreads + t.index;
  if (t.x >= batch->n_seqs || feature >= value_dim) return;
  const StateRows rows(*batch, states, t.x);
  const int key_head = key_heads_in_turn ? head % n_key_heads : head / (n_heads / n_key_heads);
  const int64_t at = static_cast<int64_t>(head) * key_dim * value_dim + feature;
  states.with_values([&](auto* values) {
    for (int i = 0; i < rows.n; ++i) {
      const float* const row = qkv.row(rows.first + i);
      const float *const query = row + q_at + key_head * key_dim, *const key = row + k_at +
                                                                               key_head * key_dim;
      const float* const decays = decay.row(rows.first + i) + head * decays_per_head;
      const float value = row[v_at + head * value_dim + feature],
                  weight = beta.row(rows.first + i)[rates != nullptr ? feature : head];
      const auto* const before = values + rows.before(states, i) + at;
      auto* const after = values + rows.after(states, i) + at;
      const auto decayed = [&](int j) {
        const float s =
            rows.starts(i) ? 0.0f : widened(before[static_cast<int64_t>(j) * value_dim]);
        if (rates != nullptr)
          return s * expf(rates[static_cast<int64_t>(feature) * key_dim + j] * weight);
        return s * decays[decays_per_head > 1 ? j : 0];
      };
      float known = 0.0f;
      for (int j = 0; delta && j < key_dim; ++j) known += decayed(j) * key[j];
      const float update = delta ? weight * (value - known) : weight * value;
      float read = 0.0f;
      for (int j = 0; j < key_dim; ++j) {
        const float s = decayed(j) + key[j] * update;
        put(s, after[static_cast<int64_t>(j) * value_dim]);
        read += s * query[j];
      }
      out.row(rows.first + i)[head * value_dim + feature] =
          skip != nullptr ? read + skip[rates != nullptr ? feature : head] * value : read;
    }
  });
}
PENSTOCK_KERNEL(ScanStates)

}  // namespace penstock::cuda
