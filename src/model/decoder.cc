// The decoder that most architectures share. n tokens of all sequences are the rows of every tensor.
#include "model/arch/archs.h"

namespace penstock {

NormParams norm_params(const ModelConfig& config, const NormWeights& norm) {
  return {norm.weight.get(), norm.bias.get(), config.norm_eps, config.layer_norm};
}

namespace {

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

  // x += softmax(q k^T) v o of h over the cache; then `next` is prepared.
  void attention(int i, const NormedInput& h, const NormedInput* next) {
    const LayerWeights& layer = weights_.layers[i];
    const LinearTarget qkv[] = {layer.q.into(q_), layer.k.into(k_), layer.v.into(v_)};
    ops_.norm_linear(rounded(h), qkv);
    if (config_.qk_norm != QkNorm::kNone) norm_q_and_k(layer);
    const int rope = config_.layers[i].rope;
    ops_.rope_and_store(q_, k_, v_, rope < 0 ? nullptr : &weights_.ropes[rope], cache_, i);
    ops_.attend(q_, cache_, {i, config_.n_heads, config_.attention_scale, config_.attention_softcap},
                attended_);
    if (layer.attn_sub_norm) ops_.norm(attended_, norm_params(config_, layer.attn_sub_norm), attended_);
    if (config_.int8_activations) ops_.round_int8(attended_);
    add_product(attended_, layer.o, h.x, layer.attn_post_norm, next);
  }

  // x += down(act(gate h) * up h), or the chosen experts' mixture; then `next` is prepared.
  void feed_forward(int i, const NormedInput& h, const NormedInput* next) {
    const LayerWeights& layer = weights_.layers[i];
    if (config_.layers[i].moe) {
      const LinearTarget router = layer.router.into(router_);
      ops_.norm_linear(h, {&router, 1});
      ops_.moe(ops_.materialize(h), router_,
               {layer.expert_gate, layer.expert_up, layer.expert_down, config_.n_active_experts,
                config_.normalize_experts, config_.activation},
               out_);
      return add(out_, h.x, layer.ffn_post_norm, next);
    }
    ops_.gated_linear(rounded(h), layer.gate.into(gate_), layer.up.into(up_), config_.activation, gate_);
    if (layer.ffn_sub_norm) ops_.norm(gate_, norm_params(config_, layer.ffn_sub_norm), gate_);
    if (config_.int8_activations) ops_.round_int8(gate_);
    add_product(gate_, layer.down, h.x, layer.ffn_post_norm, next);
  }

 private:
  // h as products read it where activations are rounded first.
  NormedInput rounded(const NormedInput& h) {
    if (!config_.int8_activations) return h;
    const Tensor values = ops_.materialize(h);
    ops_.round_int8(values);
    return {values, {}, values};
  }

  // x += post(in weight^T); a model without a norm behind the sub-layer has it empty.
  void add_product(Tensor in, const LinearWeights& weights, Tensor x, const NormWeights& post,
                   const NormedInput* next) {
    const LinearTarget product = weights.into(out_);
    if (!post) return ops_.linear_add(in, product, x, config_.residual_scale, next);
    ops_.linear(in, {&product, 1});
    add(out_, x, post, next);
  }

  // x += post(delta).
  void add(Tensor delta, Tensor x, const NormWeights& post, const NormedInput* next) {
    if (!post) return ops_.add_shares(x, delta, config_.residual_scale, next);
    ops_.all_reduce(delta);
    ops_.norm(delta, norm_params(config_, post), delta);
    ops_.add_whole(x, delta, config_.residual_scale, next);
  }

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

  // What a sub-layer reads: the stream, or its norm.
  const auto input = [&](const NormWeights& norm) {
    return norm ? NormedInput{x, norm_params(config, norm), normed} : NormedInput{x, {}, x};
  };

  if (options.stream == nullptr) ops.embed_tokens(*weights.embedding, config.embedding_scale, x);
  NormedInput h = input(weights.layers[options.first_layer].attn_norm);
  ops.prepare(h);
  for (int i = options.first_layer; i < n_layers; ++i) {
    const NormedInput between = input(weights.layers[i].ffn_norm);
    decoder.attention(i, h, &between);
    const bool last = i + 1 == n_layers;
    if (!last) h = input(weights.layers[i + 1].attn_norm);
    decoder.feed_forward(i, between, last ? nullptr : &h);
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
