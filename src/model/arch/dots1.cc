// dots.llm1 and Solar Open: DeepSeek V3's experts after ordinary attention.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_solar_open(ConfigReader& reader, ModelConfig& config) {
  read_experts(reader, config);
  read_dense_layers(reader, config);
  read_sigmoid_routing(reader, config);
  read_shared_experts(reader, config);
}

// A norm on every head of q and k, and windows in the layers behind max_window_layers.
void configure_dots1(ConfigReader& reader, ModelConfig& config) {
  config.attention.qk_norm = QkNorm::kHead;
  configure_solar_open(reader, config);
  if (reader.gguf()) return;
  read_windows(reader, config, 0);
  if (reader.has({"", "layer_types"})) return;
  const int first = reader.integer({"", "max_window_layers"}, 0, 1 << 20, 62);
  for (int i = 0; i < config.n_layers && i < first; ++i)
    config.layers[static_cast<size_t>(i)].window = 0;
}

void describe_dots1(ConfigWriter& writer, const ModelConfig& config) {
  describe_sigmoid_routing(writer, config);
  writer.set({"leading_dense_block_count", "first_k_dense_replace"}, leading_dense_layers(config));
  writer.set({"expert_shared_count", "n_shared_experts"},
             config.experts.shared_dim / config.experts.ffn_dim);
  writer.erase({"", "num_experts"});
  writer.set({"", "n_routed_experts"}, config.experts.count);
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

}  // namespace

extern constinit const Architecture kSolarOpen = {
    .name = "solaropen",
    .title = "Solar Open",
    .hf_types = {"solar_open", "SolarOpenForCausalLM"},
    .gguf_name = "glm4moe",
    .configure = configure_solar_open,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5, "rope_theta": 1e6, "n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "moe_intermediate_size": 1280})",
    .describe = describe_dots1,
    .gguf_names = glm4_moe_gguf_names,
    .partial_rope = true,
};

extern constinit const Architecture kDots1 = {
    .name = "dots1",
    .title = "dots.llm1",
    .hf_types = {"dots1", "Dots1ForCausalLM"},
    .configure = configure_dots1,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"sliding_window": 4096, "norm_topk_prob": false, "moe_intermediate_size": 1408})",
    .describe = describe_dots1,
};

}  // namespace penstock
