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
void visit_mix(TensorVisitor& v, const MixNames& names, int shares, int scales,
               StreamMixWeights& w) {
  const MixedStreamsConfig& c = v.config().mixed_streams;
  v.linear({.name = names.weights,
            .role = WeightRole::kRouter,
            .rows = shares,
            .cols = c.count * v.config().model_dim,
            .part = Part::kRouter,
            .bare = true},
           w.weights);
  v.vector({names.base, shares, {0, shares}}, w.base);
  v.vector({names.scale, scales, {0, scales}}, w.scale);
}

}  // namespace

void visit(TensorVisitor& v, MixedStreamsWeights& w) {
  const MixedStreamsConfig& c = v.config().mixed_streams;
  const int scales = c.mixes ? 3 : 2;
  visit_mix(v, {&tensor::kAttnMixWeights, &tensor::kAttnMixBase, &tensor::kAttnMixScale},
            c.shares(), scales, w.attention);
  visit_mix(v, {&tensor::kFfnMixWeights, &tensor::kFfnMixBase, &tensor::kFfnMixScale}, c.shares(),
            scales, w.feed_forward);
}

void visit_last(TensorVisitor& v, StreamMixWeights& w) {
  visit_mix(v, {&tensor::kLastMixWeights, &tensor::kLastMixBase, &tensor::kLastMixScale},
            v.config().mixed_streams.count, 1, w);
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

// Computes the shares and adds what they read of the streams.
void MixedStreams::add_read(const StreamMixWeights& w, Tensor shares, Tensor to) {
  const MixedStreamsConfig& c = config_.mixed_streams;
  ops_.norm(streams_, {nullptr, nullptr, config_.norm.eps}, other_);
  const LinearTarget target = w.weights.into(shares);
  ops_.linear(other_, {&target, 1});
  ops_.mix_streams(shares, {c.count, w.scale.get(), w.base.get(), c.eps, c.iterations, c.magnitude,
                            c.write_eps});
  ops_.add_mixed(streams_, shares.columns(0, c.count), config_.model_dim, to);
}

NormedInput MixedStreams::enter(const StreamMixWeights& w, const NormWeights& norm) {
  ops_.clear(in_);
  add_read(w, shares_, in_);
  ops_.norm(in_, norm_params(config_, norm), normed_);
  return {normed_, {}, normed_};
}

Tensor MixedStreams::cleared() {
  ops_.clear(out_);
  return out_;
}

void MixedStreams::leave(Tensor y) {
  const int count = config_.mixed_streams.count, dim = config_.model_dim;
  if (!config_.mixed_streams.mixes)
    return ops_.add_mixed(y, shares_.columns(count, count), dim, streams_);
  ops_.clear(other_);
  ops_.add_mixed(streams_, shares_.columns(2 * count, count * count), dim, other_);
  ops_.add_mixed(y, shares_.columns(count, count), dim, other_);
  std::swap(streams_, other_);
}

void MixedStreams::end(const StreamMixWeights& last, Tensor out) {
  if (!config_.mixed_streams.ends_by_shares) return mean(out);
  ops_.clear(out);
  add_read(last, shares_.columns(0, config_.mixed_streams.count), out);
}

void MixedStreams::mean(Tensor out) {
  const int count = config_.mixed_streams.count, dim = config_.model_dim;
  ops_.copy(streams_.columns(0, dim), out);
  for (int i = 1; i < count; ++i) ops_.add(out, streams_.columns(i * dim, dim), 1.0f);
  ops_.scale(out, 1.0f / static_cast<float>(count), 0.0f);
}

}  // namespace penstock
