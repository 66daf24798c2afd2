#include "model/towers/clipped_layers.h"

#include <cmath>
#include <limits>

namespace penstock {

Status ClippedLinear::load(TensorLoader& tensors, const std::string& at, int outputs_, int inputs_,
                           TowerLinears form) {
  bounded = form == TowerLinears::kBounded;
  const std::string name = form == TowerLinears::kPlain ? at : at + ".linear";
  RETURN_IF_ERROR(tensors.linear(name, outputs_, inputs_, weights));
  if (!bounded) return {};
  const auto read = [&](const char* name, float none, float& value) -> Status {
    const std::string whole = at + "." + name;
    value = none;
    const TensorInfo* const found = tensors.find(whole);
    if (found == nullptr) return {};
    ASSIGN_OR_RETURN(const std::vector<float> one, tensors.vector(whole, found->shape));
    if (one.size() != 1 || std::isnan(one[0])) {
      return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected one number",
                    tensors.source().path().string(), whole);
    }
    value = one[0];
    return {};
  };
  constexpr float kNone = std::numeric_limits<float>::infinity();
  RETURN_IF_ERROR(read("input_min", -kNone, inputs.parameters[0]));
  RETURN_IF_ERROR(read("input_max", kNone, inputs.parameters[1]));
  RETURN_IF_ERROR(read("output_min", -kNone, outputs.parameters[0]));
  return read("output_max", kNone, outputs.parameters[1]);
}

void ClippedLinear::project(Tensor x, Tensor out, Ops& ops) const {
  if (bounded) ops.activate(x, inputs);
  const LinearTarget target = weights.into(out);
  ops.linear(x, {&target, 1});
  if (bounded) ops.activate(out, outputs);
}

Status ClippedLayers::load_layer(TensorLoader& tensors, const std::string& at, Layer& layer) {
  constexpr TowerLinears kBounds = TowerLinears::kBounded;
  const ModelConfig& layers = config_.layers;
  const int dim = layers.model_dim, head_dim = layers.head_dim, q_dim = layers.q_dim(),
            kv_dim = layers.kv_dim(), wide = layers.ffn_dim;
  const auto norm = [&](const char* name, int size, NormWeights& out) {
    return tensors.norm(at + name, size, false, out);
  };
  RETURN_IF_ERROR(norm("input_layernorm", dim, layer.attention_before));
  RETURN_IF_ERROR(norm("post_attention_layernorm", dim, layer.attention_behind));
  RETURN_IF_ERROR(norm("pre_feedforward_layernorm", dim, layer.ffn_before));
  RETURN_IF_ERROR(norm("post_feedforward_layernorm", dim, layer.ffn_behind));
  RETURN_IF_ERROR(norm("self_attn.q_norm", head_dim, layer.q_norm));
  RETURN_IF_ERROR(norm("self_attn.k_norm", head_dim, layer.k_norm));
  RETURN_IF_ERROR(layer.q.load(tensors, at + "self_attn.q_proj", q_dim, dim, kBounds));
  RETURN_IF_ERROR(layer.k.load(tensors, at + "self_attn.k_proj", kv_dim, dim, kBounds));
  RETURN_IF_ERROR(layer.v.load(tensors, at + "self_attn.v_proj", kv_dim, dim, kBounds));
  RETURN_IF_ERROR(layer.o.load(tensors, at + "self_attn.o_proj", dim, q_dim, kBounds));
  RETURN_IF_ERROR(layer.gate.load(tensors, at + "mlp.gate_proj", wide, dim, kBounds));
  RETURN_IF_ERROR(layer.up.load(tensors, at + "mlp.up_proj", wide, dim, kBounds));
  return layer.down.load(tensors, at + "mlp.down_proj", dim, wide, kBounds);
}

Result<std::unique_ptr<ClippedLayers>> ClippedLayers::load(TensorLoader& tensors,
                                                           const TowerConfig& config) {
  std::unique_ptr<ClippedLayers> result(new ClippedLayers(config));
  for (int i = 0; i < config.layers.n_layers; ++i)
    RETURN_IF_ERROR(result->load_layer(tensors, config.prefix + with_index(config.names.layer, i),
                                       result->layers_.emplace_back()));
  return result;
}

int64_t ClippedLayers::bytes() const {
  int64_t n = 0;
  for (const Layer& layer : layers_)
    for (const ClippedLinear* linear :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      n += linear->weights.weight->packed_bytes();
  return n;
}

void ClippedLayers::forward(int first, int end, std::span<const RopeParams> ropes, Tensor x,
                            KvCache& cache, Ops& ops) const {
  const ModelConfig& layers = config_.layers;
  const int head_dim = layers.head_dim;
  const auto rows = [&](int cols) { return ops.new_tensor(x.rows, cols); };
  const Tensor normed = rows(x.cols), read = rows(x.cols), q = rows(layers.q_dim()),
               k = rows(layers.kv_dim()), v = rows(layers.kv_dim()), seen = rows(layers.q_dim()),
               gate = rows(layers.ffn_dim), up = rows(layers.ffn_dim);
  const auto params = [&](const NormWeights& norm) {
    return NormParams{norm.weight.get(), nullptr, layers.norm.eps, false};
  };
  // Each product has bounds of its own for what all of them read.
  const auto project = [&](const ClippedLinear& linear, Tensor out) {
    ops.copy(normed, read);
    linear.project(read, out, ops);
  };
  const auto norm_heads = [&](Tensor heads, const NormParams& norm) {
    ops.norm(heads.reshaped(head_dim), norm, heads.reshaped(head_dim));
  };
  for (int i = first; i < end; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    ops.norm(x, params(layer.attention_before), normed);
    project(layer.q, q), project(layer.k, k), project(layer.v, v);
    norm_heads(q, params(layer.q_norm)), norm_heads(k, params(layer.k_norm));
    norm_heads(v, {nullptr, nullptr, layers.norm.eps, false});
    for (size_t r = 0; r + 1 < ropes.size(); ++r) ops.rotate(q, k, ropes[r], head_dim);
    const AttentionParams attention{
        .layer = 0, .n_heads = layers.n_heads, .scale = layers.attention.scale};
    ops.store_and_attend(q, k, v, ropes.empty() ? nullptr : &ropes.back(), cache, attention, seen);
    layer.o.project(seen, read, ops);
    ops.norm(read, params(layer.attention_behind), normed);
    ops.add(x, normed, 1.0f);
    ops.norm(x, params(layer.ffn_before), normed);
    project(layer.gate, gate), project(layer.up, up);
    ops.activate_mul(gate, up, layers.ffn.activation, gate);
    layer.down.project(gate, read, ops);
    ops.norm(read, params(layer.ffn_behind), normed);
    ops.add(x, normed, 1.0f);
  }
}

}  // namespace penstock
