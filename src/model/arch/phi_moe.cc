// Phi-3.5-MoE: layer norms, biases, two experts by SparseMixer. GGUF files have the published
// models' jitter without a key for it.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

constexpr float kPublishedJitter = 0.01f;

// Reads longrope's two magnitudes, within and beyond the original context.
void read_magnitude(ConfigReader& reader, RopeConfig& rope) {
  const nlohmann::json* parameters = reader.find({"", "rope_parameters"});
  if (parameters == nullptr) parameters = reader.find({"", "rope_scaling"});
  if (parameters == nullptr || rope.scaling == RopeScaling::kNone) return;
  ConfigReader inner(*parameters, Naming::kHuggingFace, "", reader.where() + ": rope_parameters");
  rope.attention_factor = inner.number({"", "short_mscale"}, 1e-3f, 1e3f);
  if (inner.number({"", "long_mscale"}, 1e-3f, 1e3f) != rope.attention_factor)
    inner.fail(ErrorCode::kUnsupported, "short_mscale and long_mscale: expected the same number");
  reader.merge(inner);
}

void configure_phimoe(ConfigReader& reader, ModelConfig& config) {
  config.norm.layer_norm = true;
  read_windows(reader, config, 0);
  read_magnitude(reader, config.ropes[0]);
  read_experts(reader, config);
  if (config.experts.routing.n_active != 2) {
    reader.fail(ErrorCode::kUnsupported, fmt::format("experts of a token: expected 2, got {}",
                                                     config.experts.routing.n_active));
  }
  config.experts.routing.score = RouterScore::kSparseMixer;
  config.experts.routing.normalize = false;
  config.experts.routing.jitter =
      reader.number({"", "router_jitter_noise"}, 0.0f, 1e3f, kPublishedJitter);
}

void describe_phimoe(ConfigWriter& writer, const ModelConfig& config) {
  describe_biases(writer, config);
  writer.set({"attention.layer_norm_rms_epsilon", ""}, config.norm.eps);  // llama.cpp's key
  writer.erase({"attention.layer_norm_epsilon", ""});
  writer.set({"", "lm_head_bias"}, writer.has_tensor("output.bias"));
  writer.set({"", "router_jitter_noise"}, config.experts.routing.jitter);
  writer.set({"", "num_local_experts"}, config.experts.count);
  for (const std::string_view key : {"num_experts", "norm_topk_prob", "moe_intermediate_size"})
    writer.erase({"", key});
  const RopeConfig& rope = config.ropes[0];
  if (rope.attention_factor == 0.0f) return;
  writer.set_inside({"", "rope_parameters"}, "short_mscale", rope.attention_factor);
  writer.set_inside({"", "rope_parameters"}, "long_mscale", rope.attention_factor);
}

}  // namespace

extern constinit const Architecture kPhiMoe = {
    .name = "phimoe",
    .title = "Phi-3.5-MoE",
    .hf_types = {"phimoe", "PhimoeForCausalLM", "PhiMoEForCausalLM"},
    .configure = configure_phimoe,
    .hf_names = mixtral_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
    "num_local_experts": 16, "num_experts_per_tok": 2})",
    .describe = describe_phimoe,
};

}  // namespace penstock
