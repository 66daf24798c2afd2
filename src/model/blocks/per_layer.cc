#include "model/blocks/per_layer.h"

#include <cmath>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {

void visit(TensorVisitor& v, PerLayerWeights& w) {
  const auto& c = v.config();
  const int dim = c.model_dim, own = c.per_layer.dim;
  v.linear({&tensor::kPerLayerGate, WeightRole::kOther, own, dim}, w.gate);
  v.linear({&tensor::kPerLayerProjection, WeightRole::kOther, dim, own}, w.projection);
  v.norm({&tensor::kPerLayerPostNorm, dim}, w.post_norm);
}

PerLayerInputs::PerLayerInputs(const ModelConfig& config, const ModelWeights& weights, Tensor x,
                               Ops& ops)
    : config_(config), weights_(weights), ops_(ops) {
  const int own = config.per_layer.dim, all = config.n_layers * own;
  all_ = ops.new_tensor(x.rows, all);
  gated_ = ops.new_tensor(x.rows, own);
  out_ = ops.new_tensor(x.rows, config.model_dim);
  const Tensor looked_up = ops.new_tensor(x.rows, all);
  ops.embed_tokens(*weights.per_layer.table, std::sqrt(static_cast<float>(own)), looked_up);
  const LinearTarget projection = weights.per_layer.projection.into(all_);
  ops.linear(x, {&projection, 1});
  ops.scale(all_, 1.0f / std::sqrt(static_cast<float>(config.model_dim)), 0.0f);
  ops.norm(all_.reshaped(own), norm_params(config, weights.per_layer.norm), all_.reshaped(own));
  ops.add(all_, looked_up, 1.0f);
  ops.scale(all_, std::sqrt(0.5f), 0.0f);
}

PerLayerInputs::PerLayerInputs(const ModelConfig& config, const ModelWeights& weights,
                               Tensor inputs, int first_layer, Ops& ops)
    : config_(config), weights_(weights), ops_(ops), first_layer_(first_layer), all_(inputs) {
  gated_ = ops.new_tensor(inputs.rows, config.per_layer.dim);
  out_ = ops.new_tensor(inputs.rows, config.model_dim);
}

Tensor PerLayerInputs::from(int layer) const {
  const int at = (layer - first_layer_) * config_.per_layer.dim;
  return all_.columns(at, all_.cols - at);
}

Tensor PerLayerInputs::update(int layer, Tensor x) {
  const PerLayerWeights& weights = weights_.layers[static_cast<size_t>(layer)].per_layer;
  const LinearTarget gate = weights.gate.into(gated_), projection = weights.projection.into(out_);
  ops_.linear(x, {&gate, 1});
  ops_.activate(gated_, config_.ffn.activation);
  ops_.multiply(gated_, from(layer).columns(0, config_.per_layer.dim));
  ops_.linear(gated_, {&projection, 1});
  ops_.norm(out_, norm_params(config_, weights.post_norm), out_);
  return out_;
}

}  // namespace penstock
