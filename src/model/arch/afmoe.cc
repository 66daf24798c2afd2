// AFMoE (Trinity): norms before and after each sub-layer and on every head, output gates with a
// number for each attended value, DeepSeek V3's experts without groups; layers with full attention
// are not rotated.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_afmoe(ConfigReader& reader, ModelConfig& config) {
  config.residual.norms = NormPlacement::kBoth;
  config.attention.qk_norm = QkNorm::kHead;
  config.attention.value_gates = true;
  const int every = reader.integer({"", "global_attn_every_n_layers"}, 1, 1024, 4);
  read_windows(reader, config, every);
  if (every == 1 && !reader.has({"attention.sliding_window_pattern", "layer_types"}))
    for (LayerConfig& layer : config.layers) layer.window = 0;
  if (reader.integer({"attention.sliding_window", "sliding_window"}, 0, 1 << 30, 0) == 0)
    reader.fail(ErrorCode::kUnsupported,
                "sliding_window: expected at least 1, which tells the layers that are rotated");
  for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? 0 : -1;
  const std::string score = reader.text({"", "scoring_func"}, "sigmoid");
  if (score != "sigmoid")
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("score_func: expected sigmoid, got '{}'", score));
  read_experts(reader, config);
  read_dense_layers(reader, config);
  read_sigmoid_routing(reader, config);
  // Default of llama.cpp for files without the key.
  if (reader.gguf())
    config.experts.routing.normalize = reader.flag({"expert_weights_norm", ""}, false);
  read_shared_experts(reader, config);
  const float root = std::sqrt(static_cast<float>(config.model_dim));
  const bool scaled = reader.gguf() || reader.flag({"", "mup_enabled"}, false);
  config.embedding.scale =
      scaled ? reader.number({"embedding_scale", ""}, -1e6f, 1e6f, root) : 1.0f;
}

void afmoe_names(NameTable& names, const ModelConfig&) {
  names[tensor::kGates] = "self_attn.gate_proj";
  names[tensor::kFfnNorm] = "pre_mlp_layernorm", names[tensor::kFfnPostNorm] = "post_mlp_layernorm";
  names[tensor::kRouter] = "mlp.router.gate", names[tensor::kSelectionBias] = "mlp.expert_bias";
}

void describe_afmoe(ConfigWriter& writer, const ModelConfig& config) {
  describe_sigmoid_routing(writer, config);
  writer.set({"leading_dense_block_count", "first_k_dense_replace"}, leading_dense_layers(config));
  writer.set({"expert_shared_count", "n_shared_experts"},
             config.experts.shared_dim / config.experts.ffn_dim);
  writer.set({"", "mup_enabled"}, config.embedding.scale != 1.0f);
  if (config.embedding.scale == 1.0f) writer.set({"embedding_scale", ""}, 1.0f);
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

}  // namespace

extern constinit const Architecture kAfmoe = {
    .name = "afmoe",
    .title = "AFMoE (Trinity)",
    .hf_types = {"afmoe", "AfmoeForCausalLM"},
    .configure = configure_afmoe,
    .hf_names = afmoe_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "rms_norm_eps": 1e-5,
    "moe_intermediate_size": 1408, "num_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
    "first_k_dense_replace": 1, "sliding_window": 1024})",
    .hf_aliases = R"({"num_shared_experts": "n_shared_experts",
    "num_dense_layers": "first_k_dense_replace", "route_scale": "routed_scaling_factor", "route_norm": "norm_topk_prob",
    "score_func": "scoring_func"})",
    .describe = describe_afmoe,
};

}  // namespace penstock
