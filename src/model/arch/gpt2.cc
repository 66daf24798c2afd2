// GPT-2: learned positions, layer norms with biases, one fused projection, a plain feed-forward.
#include "model/decoder.h"

namespace penstock {

void configure_gpt2(ConfigReader& reader, ModelConfig& config) {
  config.layer_norm = true;
  config.learned_positions = true;
  config.gated_ffn = false;
  config.ropes.clear();
  for (LayerConfig& layer : config.layers) layer.rope = -1;
  if (reader.gguf()) config.activation = Activation::kGeluTanh;
  if (reader.flag({"", "scale_attn_by_inverse_layer_idx"}, false))
    reader.fail(ErrorCode::kUnsupported, "scale_attn_by_inverse_layer_idx is not supported");
}

void gpt2_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"transformer.", ""};
  names.embedding = "wte";
  names.positions = "wpe";
  names.final_norm = "ln_f";
  names.layer = "h.{}.";
  names.attn_norm = "ln_1";
  names.qkv = "attn.c_attn";
  names.o = "attn.c_proj";
  names.ffn_norm = "ln_2";
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  names.transposed = true;
}

StepOutputs gpt2_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                         KvCache& cache, Ops& ops, const ForwardOptions& options) {
  const int n = shape.tokens;
  const int n_layers = options.n_layers > 0 ? options.n_layers : config.n_layers;
  const Tensor x =
      options.stream != nullptr ? *options.stream : ops.new_tensor(n, config.model_dim, TensorRole::kStream);
  const Tensor h = ops.new_tensor(n, config.model_dim);      // what a sub-layer reads
  const Tensor delta = ops.new_tensor(n, config.model_dim);  // what it adds
  const Tensor q = ops.new_tensor(n, config.q_dim());        // [n, n_heads * head_dim]
  const Tensor k = ops.new_tensor(n, config.kv_dim());       // [n, n_kv_heads * head_dim]
  const Tensor v = ops.new_tensor(n, config.kv_dim());
  const Tensor attended = ops.new_tensor(n, config.q_dim());
  const Tensor wide = ops.new_tensor(n, config.ffn_dim);

  if (options.stream == nullptr) embed_input(config, weights, x, ops);
  for (int i = options.first_layer; i < n_layers; ++i) {
    const LayerWeights& layer = weights.layers[i];
    const NormedInput attn_in{x, norm_params(config, layer.attn_norm), h};
    const LinearTarget qkv[] = {layer.q.into(q), layer.k.into(k), layer.v.into(v)};
    ops.prepare(attn_in);
    ops.norm_linear(attn_in, qkv);
    ops.rope_and_store(q, k, v, nullptr, cache, i);
    ops.attend(q, cache, {i, config.n_heads, config.attention_scale, 0.0f}, attended);
    const NormedInput ffn_in{x, norm_params(config, layer.ffn_norm), h};
    ops.linear_add(attended, layer.o.into(delta), x, 1.0f, &ffn_in);

    const LinearTarget up = layer.up.into(wide);
    ops.norm_linear(ffn_in, {&up, 1});
    ops.activate(wide, config.activation);
    ops.linear_add(wide, layer.down.into(delta), x, 1.0f, nullptr);
  }
  if (options.stream != nullptr) return {};
  return output_head(config, weights, x, shape, ops, options);
}

}  // namespace penstock
