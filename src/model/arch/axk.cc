// A.X K1: DeepSeek V3 with a norm behind the experts, which released checkpoints choose without a
// bias. A.X K2: DeepSeek V3.2 whose norms have gates before attention and experts; queries and gates of
// attended values are projected from the latent, normed and raw.
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_axk1(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  configure_glm4_moe_lite(reader, config);
  config.experts.normed = true;
  const int first = leading_dense_layers(config);
  config.experts.selection_bias =
      reader.has_tensor(fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", first));
}

void axk1_names(NameTable& names, const ModelConfig&) {
  names[tensor::kFfnPostNorm] = "post_mlp_layernorm";
}

// Without n_group and topk_group experts have no groups.
void configure_axk2(ConfigReader& reader, ModelConfig& config) {
  constexpr int kMostGateRank = 1 << 16;
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  const Key groups{"", "n_group"}, active{"", "topk_group"};
  if (reader.has(groups) != reader.has(active))
    reader.fail(ErrorCode::kCorruptFile, "n_group and topk_group: expected both or neither");
  configure_glm4_moe_lite(reader, config);
  read_indexers_of_all(reader, config, false);
  config.latent.gates_of_latent = config.attention.value_gates = true;
  config.experts.routing.left_out_as_zero = true;
  config.norm.gate_rank = reader.integer({"", "gated_norm_rank"}, 1, kMostGateRank, 16);
}

void axk2_names(NameTable& names, const ModelConfig&) {
  names[tensor::kAttnNorm] = "input_layernorm.norm";
}

}  // namespace

StepOutputs axk2_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                         KvCache& cache, Ops& ops, const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // LayerRunner refuses latents
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  NormGate gate(config, shape.tokens, ops);
  begin_stream(config, weights, shape, x, ops, options);
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    decoder.attention(i, gate.apply(x, layer.attn_norm, layer.attn_gate, normed), x, nullptr);
    decoder.feed_forward(i, gate.apply(x, layer.ffn_norm, layer.experts_gate, normed), x, nullptr);
  }
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kAxk1 = {
    .name = "axk1",
    .title = "A.X K1",
    .hf_types = {"axk1", "AXK1ForCausalLM", "AXK1"},
    .directories_only = true,
    .configure = configure_axk1,
    .hf_names = axk1_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 192, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5, "n_group": 8,
    "topk_group": 4, "first_k_dense_replace": 1})",
    .partial_rope = true,
};

namespace {

constexpr MeaningfulKey kAxk2Keys[] = {{{"", "gated_norm_rank"}, 0}};

}  // namespace

extern constinit const Architecture kAxk2 = {
    .name = "axk2",
    .title = "A.X K2 (sparse attention; CPU)",
    .hf_types = {"axk2", "AXK2ForCausalLM"},
    .directories_only = true,
    .configure = configure_axk2,
    .hf_names = axk2_names,
    .forward = axk2_forward,
    .hf_defaults = R"({"q_lora_rank": 384, "kv_lora_rank": 128, "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 64, "v_head_dim": 64, "n_routed_experts": 128, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 512, "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1, "index_topk": 2048, "index_n_heads": 16, "index_head_dim": 128})",
    .partial_rope = true,
    .own_keys = kAxk2Keys,
};

}  // namespace penstock
