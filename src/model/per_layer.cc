// Features that every layer gets of a token beside the stream (Gemma 3n and 4), and experts beside a dense feed-forward
// (Gemma 4): their weights.
#include <cmath>

#include "model/per_layer.h"
#include "model/weight_loader.h"

namespace penstock {

Status WeightLoader::load_per_layer(const std::string& at, PerLayerWeights& out) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim, own = config_.per_layer_dim;
  RETURN_IF_ERROR(linear(name(names_.per_layer_gate), own, dim, out.gate));
  RETURN_IF_ERROR(linear(name(names_.per_layer_projection), dim, own, out.projection));
  return norm(name(names_.per_layer_post_norm), dim, out.post_norm);
}

Status WeightLoader::load_beside(const std::string& at, BesideWeights& out) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim;
  RETURN_IF_ERROR(norm(name(names_.expert_norm), dim, out.expert_norm));
  RETURN_IF_ERROR(norm(name(names_.dense_post_norm), dim, out.dense_post_norm));
  RETURN_IF_ERROR(norm(name(names_.expert_post_norm), dim, out.expert_post_norm));
  ASSIGN_OR_RETURN(std::vector<float> scale, vector(name(names_.router_scale), dim));
  for (float& value : scale) value /= std::sqrt(static_cast<float>(dim));
  ASSIGN_OR_RETURN(out.router_norm.weight, ops_.pack_vector(scale));
  ASSIGN_OR_RETURN(const std::vector<float> each, vector(name(names_.expert_scale), config_.n_experts));
  ASSIGN_OR_RETURN(out.expert_scale, ops_.pack_vector(each));
  return {};
}

PerLayerInputs::PerLayerInputs(const ModelConfig& config, const ModelWeights& weights, Tensor x, Ops& ops)
    : config_(config), weights_(weights), ops_(ops) {
  const int own = config.per_layer_dim, all = config.n_layers * own;
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

PerLayerInputs::PerLayerInputs(const ModelConfig& config, const ModelWeights& weights, Tensor inputs,
                               int first_layer, Ops& ops)
    : config_(config), weights_(weights), ops_(ops), first_layer_(first_layer), all_(inputs) {
  gated_ = ops.new_tensor(inputs.rows, config.per_layer_dim);
  out_ = ops.new_tensor(inputs.rows, config.model_dim);
}

Tensor PerLayerInputs::update(int layer, Tensor x) {
  const PerLayerWeights& weights = weights_.layers[static_cast<size_t>(layer)].per_layer;
  const LinearTarget gate = weights.gate.into(gated_), projection = weights.projection.into(out_);
  ops_.linear(x, {&gate, 1});
  ops_.activate(gated_, config_.activation);
  ops_.multiply(gated_, from(layer).columns(0, config_.per_layer_dim));
  ops_.linear(gated_, {&projection, 1});
  ops_.norm(out_, norm_params(config_, weights.post_norm), out_);
  return out_;
}

}  // namespace penstock
