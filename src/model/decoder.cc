// The decoder that most architectures share. n tokens of all sequences are the rows of every tensor.
#include "model/archs.h"

namespace penstock {

NormParams norm_params(const ModelConfig& config, const NormWeights& norm) {
  return {norm.weight.get(), norm.bias.get(), config.norm_eps, config.layer_norm};
}

namespace {

void linear(Ops& ops, Tensor x, const LinearWeights& weights, Tensor out) {
  const LinearTarget target = weights.into(out);
  ops.linear(x, {&target, 1});
}

// One layer's part of a forward: what does not change over the layers, and the step's scratch tensors.
class Decoder {
 public:
  Decoder(const ModelConfig& config, const ModelWeights& weights, StepShape shape, KvCache& cache, Ops& ops)
      : config_(config), weights_(weights), cache_(cache), ops_(ops) {
    const int n = shape.tokens;
    const int n_heads = config.n_heads, n_kv_heads = config.n_kv_heads;
    q_ = ops.new_tensor(n, n_heads * config.head_dim);
    k_ = ops.new_tensor(n, n_kv_heads * config.head_dim);
    v_ = ops.new_tensor(n, n_kv_heads * config.head_dim);
    attended_ = ops.new_tensor(n, n_heads * config.head_dim);
    out_ = ops.new_tensor(n, config.model_dim);
    if (config.ffn_dim > 0) {
      gate_ = ops.new_tensor(n, config.ffn_dim);
      up_ = ops.new_tensor(n, config.ffn_dim);
    }
    if (config.n_experts > 0) router_ = ops.new_tensor(n, config.n_experts, TensorRole::kLogits);
  }

  // softmax(q k^T) v of h [n, model_dim] over the cache; returns [n, model_dim].
  Tensor attention(int i, Tensor h) {
    const LayerWeights& layer = weights_.layers[i];
    if (config_.int8_activations) ops_.round_int8(h);
    const LinearTarget qkv[] = {layer.q.into(q_), layer.k.into(k_), layer.v.into(v_)};
    ops_.linear(h, qkv);
    if (config_.qk_norm != QkNorm::kNone) norm_q_and_k(layer);
    const int rope = config_.layers[i].rope;
    ops_.rope_and_store(q_, k_, v_, rope < 0 ? nullptr : &weights_.ropes[rope], cache_, i);
    ops_.attend(q_, cache_, {i, config_.n_heads, config_.attention_scale, config_.attention_softcap},
                attended_);
    if (layer.attn_sub_norm) ops_.norm(attended_, norm_params(config_, layer.attn_sub_norm), attended_);
    if (config_.int8_activations) ops_.round_int8(attended_);
    linear(ops_, attended_, layer.o, out_);
    return out_;
  }

  // down(act(gate h) * up h), or the chosen experts' mixture; h and the result are [n, model_dim].
  Tensor feed_forward(int i, Tensor h) {
    const LayerWeights& layer = weights_.layers[i];
    if (config_.layers[i].moe) {
      linear(ops_, h, layer.router, router_);
      ops_.moe(h, router_,
               {layer.expert_gate, layer.expert_up, layer.expert_down, config_.n_active_experts,
                config_.normalize_experts, config_.activation},
               out_);
      return out_;
    }
    if (config_.int8_activations) ops_.round_int8(h);
    const LinearTarget gate_up[] = {layer.gate.into(gate_), layer.up.into(up_)};
    ops_.linear(h, gate_up);
    ops_.activate_mul(gate_, up_, config_.activation, gate_);
    if (layer.ffn_sub_norm) ops_.norm(gate_, norm_params(config_, layer.ffn_sub_norm), gate_);
    if (config_.int8_activations) ops_.round_int8(gate_);
    linear(ops_, gate_, layer.down, out_);
    return out_;
  }

 private:
  void norm_q_and_k(const LayerWeights& layer) {
    const bool heads = config_.qk_norm == QkNorm::kHead;
    const Tensor q = heads ? q_.reshaped(config_.head_dim) : q_;
    const Tensor k = heads ? k_.reshaped(config_.head_dim) : k_;
    ops_.norm(q, norm_params(config_, layer.q_norm), q);
    ops_.norm(k, norm_params(config_, layer.k_norm), k);
  }

  const ModelConfig& config_;
  const ModelWeights& weights_;
  KvCache& cache_;
  Ops& ops_;
  Tensor q_, k_, v_, attended_, out_, gate_, up_, router_;
};

}  // namespace

StepOutputs decoder_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                            KvCache& cache, Ops& ops, const ForwardOptions& options) {
  const int n_layers = options.n_layers > 0 ? options.n_layers : config.n_layers;
  // [n, model_dim], the residual stream
  const Tensor x = options.stream != nullptr
                       ? *options.stream
                       : ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  const Tensor normed = ops.new_tensor(shape.tokens, config.model_dim);
  Decoder decoder(config, weights, shape, cache, ops);

  // x += post(f); then h = pre(x) for the next sub-layer. A model without a norm at either place has it
  // empty.
  Tensor h = x;
  const auto add_residual = [&](Tensor f, const NormWeights& post, const NormWeights* pre) {
    if (post) ops.norm(f, norm_params(config, post), f);
    if (pre == nullptr || !*pre) return ops.add(x, f, config.residual_scale);
    ops.add_norm(x, f, config.residual_scale, norm_params(config, *pre), normed);
  };

  if (options.stream == nullptr) ops.embed_tokens(*weights.embedding, config.embedding_scale, x);
  if (config.norms != NormPlacement::kPost) {
    h = normed;
    ops.norm(x, norm_params(config, weights.layers[options.first_layer].attn_norm), h);
  }
  for (int i = options.first_layer; i < n_layers; ++i) {
    const LayerWeights& layer = weights.layers[i];
    add_residual(decoder.attention(i, h), layer.attn_post_norm, &layer.ffn_norm);
    add_residual(decoder.feed_forward(i, h), layer.ffn_post_norm,
                 i + 1 < n_layers ? &weights.layers[i + 1].attn_norm : nullptr);
  }
  if (options.stream != nullptr) return {};
  return output_head(config, weights, x, shape, ops, options);
}

StepOutputs output_head(const ModelConfig& config, const ModelWeights& weights, Tensor x, StepShape shape,
                        Ops& ops, const ForwardOptions& options) {
  StepOutputs result;
  result.hidden = ops.new_tensor(shape.outputs, config.model_dim);
  if (shape.outputs == 0) return result;
  ops.gather_outputs(x, result.hidden);
  ops.norm(result.hidden, norm_params(config, weights.final_norm), result.hidden);
  if (!options.logits) return result;
  result.logits = ops.new_tensor(shape.outputs, config.vocab_size, TensorRole::kLogits);
  project_output(config, weights, result.hidden, result.logits, ops);
  return result;
}

void project_output(const ModelConfig& config, const ModelWeights& weights, Tensor states, Tensor logits,
                    Ops& ops) {
  const LinearTarget target{&weights.output(), nullptr, logits};
  ops.linear(states, {&target, 1});
  if (config.logit_scale != 1.0f || config.final_softcap > 0)
    ops.scale(logits, config.logit_scale, config.final_softcap);
}

}  // namespace penstock
