#include "model/blocks/gated_streams.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

struct GateNames {
  const TensorName *norm, *down, *up, *inject;
};

void visit_gates(TensorVisitor& v, const GateNames& names, StreamGateWeights& w) {
  const GatedStreamsConfig& c = v.config().streams;
  const int all = c.count * v.config().model_dim;
  v.norm({names.norm, all}, w.norm);
  v.linear({names.down, WeightRole::kLatent, c.rank, all}, w.down);
  v.linear({names.up, WeightRole::kLatent, all, c.rank}, w.up);
  if (names.inject != nullptr)
    v.linear({names.inject, WeightRole::kRouter, c.count, all, {}, Site::kNone, Part::kRouter},
             w.inject);
}

}  // namespace

void visit(TensorVisitor& v, GatedStreamsWeights& w) {
  visit_gates(v,
              {&tensor::kAttnStreamsNorm, &tensor::kAttnStreamsDown, &tensor::kAttnStreamsUp,
               &tensor::kAttnStreamsInject},
              w.attention);
  visit_gates(v,
              {&tensor::kFfnStreamsNorm, &tensor::kFfnStreamsDown, &tensor::kFfnStreamsUp,
               &tensor::kFfnStreamsInject},
              w.feed_forward);
}

void visit_last(TensorVisitor& v, StreamGateWeights& w) {
  visit_gates(
      v, {&tensor::kLastStreamsNorm, &tensor::kLastStreamsDown, &tensor::kLastStreamsUp, nullptr},
      w);
}

GatedStreams::GatedStreams(const ModelConfig& config, int n, Ops& ops)
    : config_(config), ops_(ops) {
  const int count = config.streams.count, dim = config.model_dim;
  streams_ = ops.new_tensor(n, count * dim, TensorRole::kStream);
  normed_ = ops.new_tensor(n, count * dim);
  gates_ = ops.new_tensor(n, count * dim);
  narrow_ = ops.new_tensor(n, config.streams.rank);
  shares_ = ops.new_tensor(n, count, TensorRole::kLogits);
  in_ = ops.new_tensor(n, dim);
  out_ = ops.new_tensor(n, dim, TensorRole::kStream);
}

void GatedStreams::begin(Tensor x) {
  for (int i = 0; i < config_.streams.count; ++i)
    ops_.copy(x, streams_.columns(i * config_.model_dim, config_.model_dim));
}

void GatedStreams::mean(Tensor streams, const StreamGateWeights& w, Tensor out) {
  const int count = config_.streams.count, dim = config_.model_dim, rows = streams.rows;
  const float share = 1.0f / static_cast<float>(count);
  const Tensor normed = normed_.row_range(0, rows), gates = gates_.row_range(0, rows),
               narrow = narrow_.row_range(0, rows);
  ops_.norm(streams.reshaped(dim), norm_params(config_, w.norm), normed.reshaped(dim));
  const LinearTarget down = w.down.into(narrow), up = w.up.into(gates);
  if (w.inject.weight != nullptr) {
    const LinearTarget both[] = {down, w.inject.into(shares_)};
    ops_.linear(normed, both);
    ops_.scale(shares_, share, 0.0f);
    ops_.activate(shares_, Activation::kSigmoid);
    ops_.scale(shares_, 2.0f, 0.0f);
  } else {
    ops_.linear(normed, {&down, 1});
  }
  ops_.scale(narrow, share, 0.0f);
  ops_.activate(narrow, Activation::kSilu);
  ops_.linear(narrow, {&up, 1});
  ops_.activate_mul(gates, normed, Activation::kSigmoid, gates);
  ops_.copy(gates.columns(0, dim), out);
  for (int i = 1; i < count; ++i) ops_.add(out, gates.columns(i * dim, dim), 1.0f);
  ops_.scale(out, share, 0.0f);
}

NormedInput GatedStreams::enter(const StreamGateWeights& w) {
  mean(streams_, w, in_);
  return {in_, {}, in_};
}

Tensor GatedStreams::cleared() {
  ops_.clear(out_);
  return out_;
}

void GatedStreams::leave(Tensor y) { ops_.add_mixed(y, shares_, config_.model_dim, streams_); }

}  // namespace penstock
