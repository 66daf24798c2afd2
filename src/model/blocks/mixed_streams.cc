#include "model/blocks/mixed_streams.h"

#include <utility>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

struct MixNames {
  const TensorName *weights, *base, *scale;
};

// Every rank has all of it.
void visit_mix(TensorVisitor& v, const MixNames& names, StreamMixWeights& w) {
  const MixedStreamsConfig& c = v.config().mixed_streams;
  v.linear({.name = names.weights,
            .role = WeightRole::kRouter,
            .rows = c.shares(),
            .cols = c.count * v.config().model_dim,
            .part = Part::kRouter,
            .bare = true},
           w.weights);
  v.vector({names.base, c.shares(), {0, c.shares()}}, w.base);
  v.vector({names.scale, 3, {0, 3}}, w.scale);
}

}  // namespace

void visit(TensorVisitor& v, MixedStreamsWeights& w) {
  visit_mix(v, {&tensor::kAttnMixWeights, &tensor::kAttnMixBase, &tensor::kAttnMixScale},
            w.attention);
  visit_mix(v, {&tensor::kFfnMixWeights, &tensor::kFfnMixBase, &tensor::kFfnMixScale},
            w.feed_forward);
}

MixedStreams::MixedStreams(const ModelConfig& config, int n, Ops& ops)
    : config_(config), ops_(ops) {
  const MixedStreamsConfig& c = config.mixed_streams;
  const int dim = config.model_dim;
  streams_ = ops.new_tensor(n, c.count * dim, TensorRole::kStream);
  other_ = ops.new_tensor(n, c.count * dim, TensorRole::kStream);
  shares_ = ops.new_tensor(n, c.shares(), TensorRole::kLogits);
  in_ = ops.new_tensor(n, dim);
  out_ = ops.new_tensor(n, dim, TensorRole::kStream);
  normed_ = ops.new_tensor(n, dim);
}

void MixedStreams::begin(Tensor x) {
  for (int i = 0; i < config_.mixed_streams.count; ++i)
    ops_.copy(x, streams_.columns(i * config_.model_dim, config_.model_dim));
}

NormedInput MixedStreams::enter(const StreamMixWeights& w, const NormWeights& norm) {
  const MixedStreamsConfig& c = config_.mixed_streams;
  ops_.norm(streams_, {nullptr, nullptr, config_.norm.eps}, other_);
  const LinearTarget shares = w.weights.into(shares_);
  ops_.linear(other_, {&shares, 1});
  ops_.mix_streams(shares_, {c.count, w.scale.get(), w.base.get(), c.eps, c.iterations});
  ops_.clear(in_);
  ops_.add_mixed(streams_, shares_.columns(0, c.count), config_.model_dim, in_);
  ops_.norm(in_, norm_params(config_, norm), normed_);
  return {normed_, {}, normed_};
}

Tensor MixedStreams::cleared() {
  ops_.clear(out_);
  return out_;
}

void MixedStreams::leave(Tensor y) {
  const int count = config_.mixed_streams.count, dim = config_.model_dim;
  ops_.clear(other_);
  ops_.add_mixed(streams_, shares_.columns(2 * count, count * count), dim, other_);
  ops_.add_mixed(y, shares_.columns(count, count), dim, other_);
  std::swap(streams_, other_);
}

void MixedStreams::mean(Tensor out) {
  const int count = config_.mixed_streams.count, dim = config_.model_dim;
  ops_.copy(streams_.columns(0, dim), out);
  for (int i = 1; i < count; ++i) ops_.add(out, streams_.columns(i * dim, dim), 1.0f);
  ops_.scale(out, 1.0f / static_cast<float>(count), 0.0f);
}

}  // namespace penstock
