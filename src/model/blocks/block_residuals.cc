#include "model/blocks/block_residuals.h"

#include <cmath>

#include "base/check.h"
#include "model/blocks/config.h"

namespace penstock {

namespace {

constexpr float kSumEps = 1e-6f;

// The kept sums of all blocks, and the open one.
int most_sums(const ModelConfig& config) {
  const int layers = config.block_residuals.layers;
  return (config.n_layers + layers - 1) / layers + 1;
}

}  // namespace

BlockResiduals::BlockResiduals(const ModelConfig& config, int n, Ops& ops)
    : ops_(ops), dim_(config.model_dim) {
  const int most = most_sums(config);
  sums_ = ops.new_tensor(n, most * dim_, TensorRole::kStream);
  shares_ = ops.new_tensor(n, most, TensorRole::kLogits);
}

void BlockResiduals::keep(Tensor sum) {
  PENSTOCK_CHECK((n_kept_ + 1) * dim_ < sums_.cols);
  ops_.norm(sum, {nullptr, nullptr, kSumEps}, place(n_kept_++));
}

void BlockResiduals::read(const Weight& query, Tensor open, Tensor out) {
  ops_.norm(open, {nullptr, nullptr, kSumEps}, place(n_kept_));
  const int n = n_kept_ + 1;
  const Tensor shares = shares_.narrowed(n);
  for (int i = 0; i < n; ++i) {
    const LinearTarget target{&query, nullptr, shares.columns(i, 1)};
    ops_.linear(place(i), {&target, 1});
  }
  ops_.scale(shares, 1.0f / std::sqrt(static_cast<float>(dim_)), 0.0f);
  ops_.softmax_rows(shares);
  ops_.clear(out);
  ops_.add_mixed(sums_.columns(0, n * dim_), shares, dim_, out);
}

}  // namespace penstock
