// Rows that are small matrices or distributions: mixtures of streams, softmax, bounds of length.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/host_tensor.h"

namespace penstock {
namespace {

constexpr int kRowsTogether = 8;

// Normalizes the mixture of one token's streams. c: rows [n, n], overwritten by columns.
void normalize_mixture(const StreamMixParams& params, float* c) {
  const int n = params.count;
  float mixture[kMaxMixedStreams][kMaxMixedStreams];
  for (int j = 0; j < n; ++j) {
    float* const row = mixture[j];
    std::copy_n(c + j * n, n, row);
    const float most = *std::max_element(row, row + n);
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += row[k] = std::exp(row[k] - most);
    for (int k = 0; k < n; ++k) row[k] = row[k] / sum + params.eps;
  }
  for (int i = 0; i < params.iterations; ++i) {
    for (int j = 0; j < n && i > 0; ++j) {
      const float sum = std::accumulate(mixture[j], mixture[j] + n, params.eps);
      for (int k = 0; k < n; ++k) mixture[j][k] /= sum;
    }
    for (int k = 0; k < n; ++k) {
      float sum = params.eps;
      for (int j = 0; j < n; ++j) sum += mixture[j][k];
      for (int j = 0; j < n; ++j) mixture[j][k] /= sum;
    }
  }
  for (int k = 0; k < n; ++k)
    for (int j = 0; j < n; ++j) c[k * n + j] = mixture[j][k];
}

void mix_row(const StreamMixParams& params, const float* scale, const float* base, float* x) {
  const int n = params.count, n_shares = params.base->size(), n_gates = std::min(n_shares, 2 * n);
  for (int i = 0; i < n_shares; ++i) x[i] = x[i] * scale[std::min(i / n, 2)] + base[i];
  for (int i = 0; i < n_gates; ++i) x[i] = 1.0f / (1.0f + std::exp(-x[i]));
  for (int i = 0; i < n; ++i) x[i] += params.eps;
  for (int i = n; i < n_gates; ++i) x[i] = params.magnitude * x[i] + params.write_eps;
  if (n_shares > n_gates) normalize_mixture(params, x + n_gates);
}

}  // namespace

void CpuOps::mix_streams(Tensor z, const StreamMixParams& params) {
  const int n = params.count, n_scales = params.scale->size();
  PENSTOCK_CHECK(n > 0 && n <= kMaxMixedStreams && n_scales >= 1 && n_scales <= 3 &&
                 z.cols == (n_scales == 3 ? (2 + n) * n : n_scales * n) &&
                 params.base->size() == z.cols);
  const float *scale = data_of(params.scale), *base = data_of(params.base);
  pool_.for_ranges(z.rows, kRowsTogether, [&](int64_t begin, int64_t end, int) {
    for (auto row = static_cast<int>(begin); row < end; ++row)
      mix_row(params, scale, base, f32(z, row));
  });
}

void CpuOps::bound_rows(Tensor x, float bound) {
  constexpr float kLeast = 1e-6f;
  pool_.for_ranges(x.rows, kRowsTogether, [&](int64_t begin, int64_t end, int) {
    for (auto row = static_cast<int>(begin); row < end; ++row) {
      float* const values = f32(x, row);
      const float length =
          std::sqrt(std::inner_product(values, values + x.cols, values, 0.0f)) + kLeast;
      for (int c = 0; c < x.cols && length > bound; ++c) values[c] *= bound / length;
    }
  });
}

void CpuOps::softmax_rows(Tensor x) {
  pool_.for_ranges(x.rows, kRowsTogether, [&](int64_t begin, int64_t end, int) {
    for (auto row = static_cast<int>(begin); row < end; ++row) {
      float* const values = f32(x, row);
      const float most = *std::max_element(values, values + x.cols);
      float sum = 0.0f;
      for (int c = 0; c < x.cols; ++c) sum += values[c] = std::exp(values[c] - most);
      for (int c = 0; c < x.cols; ++c) values[c] /= sum;
    }
  });
}

}  // namespace penstock
