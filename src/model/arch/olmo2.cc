// OLMo: layer norms without weights. OLMoE: norms over whole rows of q and k, experts whose weights
// are not divided by their sum unless the file says so. Both may clamp queries, keys and values.
// OLMo 2 and 3: norms after attention and feed-forward only, and over whole rows of q and k;
// FlexOlmo has them beside OLMoE's experts. OLMo 3 has windows, and stretches the rope of layers
// without one only. In GGUF both are one architecture.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/arch/rope.h"

namespace penstock {

namespace {

// Sets rope 0 for layers with full attention and rope 1 for layers with a window.
void split_ropes(ModelConfig& config, const RopeConfig& sliding) {
  const RopeConfig& full = config.ropes[0];
  const bool scaled = full.scaling != RopeScaling::kNone || sliding.scaling != RopeScaling::kNone;
  if (!scaled && sliding.theta == full.theta) return;
  config.ropes.push_back(sliding);
  for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? 1 : 0;
}

RopeConfig unscaled(const RopeConfig& rope) {
  RopeConfig plain;
  plain.rotary_dim = rope.rotary_dim, plain.theta = rope.theta;
  plain.original_max_seq_len = rope.original_max_seq_len;
  return plain;
}

void configure_olmo(ConfigReader& reader, ModelConfig& config) {
  config.positions.rope_by_format = true;
  config.positions.rope_interleaved = reader.gguf();
  config.norm.layer_norm = config.norm.bare = true;
  config.norm.biases = false;
  config.norm.eps = reader.gguf()
                        ? reader.number({"attention.layer_norm_epsilon", ""}, 0.0f, 1.0f, 1e-5f)
                        : 1e-5f;
  read_clip_qkv(reader, config);
}

void describe_olmo(ConfigWriter& writer, const ModelConfig& config) {
  describe_clip_qkv(writer, config);
  writer.erase({"", "rms_norm_eps"});
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

void configure_olmo2(ConfigReader& reader, ModelConfig& config) {
  config.residual.norms = NormPlacement::kPost;
  config.attention.qk_norm = QkNorm::kRow;
  if (!reader.gguf() || reader.integer({"attention.sliding_window", ""}, 0, 1 << 30, 0) == 0)
    return;
  read_windows(reader, config, 4);
  RopeConfig sliding = unscaled(config.ropes[0]);
  sliding.theta = reader.number({"rope.freq_base_swa", ""}, 1.0f, 1e12f, sliding.theta);
  split_ropes(config, sliding);
}

void configure_olmoe(ConfigReader& reader, ModelConfig& config) {
  config.attention.qk_norm = QkNorm::kRow;
  read_experts(reader, config);
  config.experts.routing.normalize = reader.flag({"expert_weights_norm", "norm_topk_prob"}, false);
  read_clip_qkv(reader, config);
}

void describe_olmoe(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"expert_weights_norm", "norm_topk_prob"}, config.experts.routing.normalize);
  describe_clip_qkv(writer, config);
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

// OLMoE with OLMo 2's norms.
void configure_flex_olmo(ConfigReader& reader, ModelConfig& config) {
  config.residual.norms = NormPlacement::kPost;
  config.attention.qk_norm = QkNorm::kRow;
  read_experts(reader, config);
  config.experts.routing.normalize = reader.flag({"expert_weights_norm", "norm_topk_prob"}, false);
}

void configure_olmo3(ConfigReader& reader, ModelConfig& config) {
  config.residual.norms = NormPlacement::kPost;
  config.attention.qk_norm = QkNorm::kRow;
  read_windows(reader, config, 4, 4096);
  RopeConfig sliding = unscaled(config.ropes[0]);
  const nlohmann::json* parameters = reader.find({"", "rope_parameters"});
  if (parameters != nullptr && parameters->is_object() && parameters->contains("full_attention")) {
    config.ropes[0] = read_hf_rope(reader, (*parameters)["full_attention"], config, 500000.0f);
    sliding = unscaled(config.ropes[0]);
    if (parameters->contains("sliding_attention"))
      sliding = read_hf_rope(reader, (*parameters)["sliding_attention"], config, 500000.0f);
  }
  split_ropes(config, sliding);
}

}  // namespace

extern constinit const Architecture kOlmo2 = {
    .name = "olmo2",
    .title = "OLMo 2",
    .hf_types = {"olmo2", "Olmo2ForCausalLM"},
    .configure = configure_olmo2,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5})",
};

extern constinit const Architecture kOlmo3 = {
    .name = "olmo3",
    .title = "OLMo 3",
    .hf_types = {"olmo3", "Olmo3ForCausalLM"},
    .gguf_name = "olmo2",
    .configure = configure_olmo3,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 5e5})",
};

extern constinit const Architecture kOlmo = {
    .name = "olmo",
    .title = "OLMo",
    .hf_types = {"olmo", "OlmoForCausalLM"},
    .configure = configure_olmo,
    .forward = decoder_forward,
    .describe = describe_olmo,
    .gguf_pairs = true,
};

extern constinit const Architecture kOlmoe = {
    .name = "olmoe",
    .title = "OLMoE",
    .hf_types = {"olmoe", "OlmoeForCausalLM"},
    .configure = configure_olmoe,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8})",
    .describe = describe_olmoe,
};

extern constinit const Architecture kFlexOlmo = {
    .name = "flexolmo",
    .title = "FlexOlmo",
    .hf_types = {"flex_olmo", "FlexOlmoForCausalLM"},
    .configure = configure_flex_olmo,
    .forward = decoder_forward,
    .hf_defaults = R"({"rope_theta": 5e5, "num_experts": 7, "num_experts_per_tok": 5})",
    .describe = describe_olmoe,
};

}  // namespace penstock
