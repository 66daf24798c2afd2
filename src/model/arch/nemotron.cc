// Nemotron 3 and 4 (Minitron) and Jais 2: layer norms, a squared ReLU without a gate.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

void describe_biases(ConfigWriter&, const ModelConfig&);

void configure_jais2(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  config.gated_ffn = false;
  if (reader.gguf()) config.activation = Activation::kRelu2;
}

void configure_nemotron(ConfigReader& reader, ModelConfig& config) {
  configure_jais2(reader, config);
  config.norm_offset = reader.gguf() ? 0.0f : 1.0f;
}

void describe_nemotron(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  describe_biases(writer, config);
  writer.set({"", "norm_eps"}, config.norm_eps);
  writer.set({"", "partial_rotary_factor"}, static_cast<float>(config.ropes[0].rotary_dim) / config.head_dim);
}

void describe_jais2(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  describe_biases(writer, config);
}

}  // namespace penstock
