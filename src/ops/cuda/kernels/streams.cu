#include "ops/cuda/kernels/streams.h"

#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {
namespace {

PENSTOCK_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Makes rows of the mixture [n, n], one per lane, shares.
PENSTOCK_DEVICE void share_out(float* row, int n, float eps) {
  float most = row[0], sum = 0.0f;
  for (int k = 1; k < n; ++k) most = fmaxf(most, row[k]);
  for (int k = 0; k < n; ++k) sum += row[k] = expf(row[k] - most);
  for (int k = 0; k < n; ++k) row[k] = row[k] / sum + eps;
}

// Divides n numbers by their sum.
PENSTOCK_DEVICE void divide(float* at, int stride, int n, float eps) {
  float sum = eps;
  for (int i = 0; i < n; ++i) sum += at[i * stride];
  for (int i = 0; i < n; ++i) at[i * stride] /= sum;
}

}  // namespace

PENSTOCK_BODY void MixStreams::operator()(const Thread& t) const {
  float* const x = z.row(t.x);
  float* const mixture = t.shared_as<float>();  // [n, n]
  for (int i = t.index; i < z.cols; i += kThreads) {
    const int kind = i / n < 2 ? i / n : 2;
    const float value = x[i] * scale[kind] + base[i];
    if (kind == 0) x[i] = sigmoid(value) + eps;
    if (kind == 1) x[i] = magnitude * sigmoid(value) + write_eps;
    if (kind == 2) mixture[i - 2 * n] = value;
  }
  if (z.cols <= 2 * n) return;
  t.sync_warp();
  const bool has = t.index < n;
  if (has) share_out(mixture + t.index * n, n, eps);
  t.sync_warp();
  for (int i = 0; i < iterations; ++i) {
    if (has && i > 0) divide(mixture + t.index * n, 1, n, eps);
    t.sync_warp();
    if (has) divide(mixture + t.index, n, n, eps);
    t.sync_warp();
  }
  for (int i = t.index; i < n * n; i += kThreads) x[2 * n + i] = mixture[i % n * n + i / n];
}
PENSTOCK_KERNEL(MixStreams)

PENSTOCK_BODY void RootGates::operator()(const Thread& t) const {
  constexpr float kLeast = 1e-6f;
  float sum = 0.0f;
  for (int i = t.index; i < a.cols; i += kThreads) sum += a.row(t.x)[i] * b.row(t.x)[i];
  const float s = scale * block_sum<kThreads>(t, sum, t.shared_as<float>());
  const float root = sqrtf(fmaxf(fabsf(s), kLeast));
  if (t.index == 0) out.row(t.x)[0] = sigmoid(s > 0.0f ? root : s < 0.0f ? -root : 0.0f);
}
PENSTOCK_KERNEL(RootGates)

PENSTOCK_BODY void ScaleHeads::operator()(const Thread& t) const {
  const int i = t.y * kThreads + t.index;
  if (i >= x.cols || t.x >= batch->n_tokens) return;
  const int head = i / features;
  const float grown = logf(1.0f + static_cast<float>(batch->positions[t.x]));
  x.row(t.x)[i] *= slopes[head] * grown + biases[head];
}
PENSTOCK_KERNEL(ScaleHeads)

}  // namespace penstock::cuda
