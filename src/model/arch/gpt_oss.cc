// gpt-oss: attention sinks, windows in every second layer, experts with biases and a clamped gate.
// GGUF files have the published models' clamp and rope without keys for them.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

constexpr float kPublishedAlpha = 1.702f, kPublishedLimit = 7.0f;

void configure_gpt_oss(ConfigReader& reader, ModelConfig& config) {
  config.attention.sinks = true;
  config.ffn.activation = Activation::kClampedSilu;
  config.ffn.activation.parameters[0] =
      reader.number({"", "swiglu_alpha"}, -1e3f, 1e3f, kPublishedAlpha);
  config.ffn.activation.parameters[1] =
      reader.number({"", "swiglu_limit"}, 1e-3f, 1e6f, kPublishedLimit);
  if (reader.gguf()) config.ropes[0].truncate = false;
  read_windows(reader, config, 2, 128);
  read_experts(reader, config);
}

void describe_gpt_oss(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"", "swiglu_alpha"}, config.ffn.activation.parameters[0]);
  writer.set({"", "swiglu_limit"}, config.ffn.activation.parameters[1]);
  writer.set_inside({"", "rope_parameters"}, "truncate", false);
}

void gpt_oss_names(NameTable& names, const ModelConfig&) {
  names[tensor::kRouter] = "mlp.router";
  names[tensor::kExpertGateUp] = "mlp.experts.gate_up_proj",
  names[tensor::kExpertDown] = "mlp.experts.down_proj";
  names.experts_transposed = true, names.experts_interleaved = true;
  names.fused_expert_biases = true;
}

void gpt_oss_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kFfnNorm] = "post_attention_norm";
}

}  // namespace

extern constinit const Architecture kGptOss = {
    .name = "gpt-oss",
    .title = "gpt-oss",
    .hf_types = {"gpt_oss", "GptOssForCausalLM"},
    .configure = configure_gpt_oss,
    .hf_names = gpt_oss_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 150000.0, "head_dim": 64,
    "num_key_value_heads": 8, "num_experts_per_tok": 4, "num_local_experts": 128})",
    .describe = describe_gpt_oss,
    .gguf_names = gpt_oss_gguf_names,
};

}  // namespace penstock
