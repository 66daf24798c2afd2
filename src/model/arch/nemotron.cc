// Nemotron 3 and 4 (Minitron) and Jais 2: layer norms, a squared ReLU without a gate.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_jais2(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  config.ffn.gated = false;
  if (reader.gguf()) config.ffn.activation = Activation::kRelu2;
}

void configure_nemotron(ConfigReader& reader, ModelConfig& config) {
  configure_jais2(reader, config);
  config.norm.offset = reader.gguf() ? 0.0f : 1.0f;
}

void describe_nemotron(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  describe_biases(writer, config);
  writer.set({"", "norm_eps"}, config.norm.eps);
  writer.set({"", "partial_rotary_factor"},
             static_cast<float>(config.ropes[0].rotary_dim) / config.head_dim);
}

void describe_jais2(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  describe_biases(writer, config);
}

}  // namespace

extern constinit const Architecture kNemotron = {
    .name = "nemotron",
    .title = "Nemotron 4, Minitron",
    .hf_types = {"nemotron", "NemotronForCausalLM"},
    .configure = configure_nemotron,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"hidden_act": "relu2", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5})",
    .hf_aliases = R"({"norm_eps": "layer_norm_eps"})",
    .describe = describe_nemotron,
    .partial_rope = true,
    .hf_norms_less_one = true,
};

extern constinit const Architecture kJais2 = {
    .name = "jais2",
    .title = "Jais 2",
    .hf_types = {"jais2", "Jais2ForCausalLM"},
    .configure = configure_jais2,
    .forward = decoder_forward,
    .hf_defaults = R"({"hidden_act": "relu2", "layer_norm_eps": 1e-5})",
    .describe = describe_jais2,
};

}  // namespace penstock
