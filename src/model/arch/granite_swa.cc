// Granite with windows in most layers, a sink for every head, and a rope by layer; with experts,
// and without.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

// Reads, by layer, the base of the rope's frequencies, 0 for none; in GGUF whether a layer is
// rotated.
void read_layer_ropes(ConfigReader& reader, ModelConfig& config) {
  const Key key{"attention.rope_pattern", "layer_rope_theta"};
  const nlohmann::json* list = reader.find(key);
  if (list == nullptr) return;
  if (!list->is_array() || list->size() != config.layers.size()) {
    return reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("{}: expected a list of {} layers", reader.name(key), config.layers.size()));
  }
  const RopeConfig usual = config.ropes[0];
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const nlohmann::json& item = (*list)[i];
    const bool on = item.is_boolean() && item.get<bool>();
    const double theta = on                  ? usual.theta
                         : item.is_number()  ? item.get<double>()
                         : item.is_boolean() ? 0
                                             : -1;
    if (!(theta == 0 || (theta >= 1 && theta <= 1e12))) {
      return reader.fail(
          ErrorCode::kCorruptFile,
          fmt::format(
              "{}: expected 0 or a number of at least 1, got {}", reader.name(key),
              item.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 60)));
    }
    config.layers[i].rope = -1;
    if (theta == 0) continue;
    const auto found =
        std::ranges::find(config.ropes, static_cast<float>(theta), &RopeConfig::theta);
    config.layers[i].rope = static_cast<int>(found - config.ropes.begin());
    if (found != config.ropes.end()) continue;
    config.ropes.push_back(usual);
    config.ropes.back().theta = static_cast<float>(theta);
  }
}

void configure_granite_swa(ConfigReader& reader, ModelConfig& config) {
  configure_granite(reader, config);
  config.attention.sinks = true;
  read_windows(reader, config, 0, 128);
  if (!reader.has({"attention.sliding_window_pattern", "layer_types"})) {
    for (size_t i = 0; i < config.layers.size(); i += 4) config.layers[i].window = 0;
  }
  read_layer_ropes(reader, config);
  if (!reader.has({"expert_count", "num_local_experts"})) return;
  read_experts(reader, config);
  config.experts.shared_dim = reader.integer(
      {"expert_shared_feed_forward_length", "shared_intermediate_size"}, 0, 1 << 20, 0);
}

void granite_swa_names(NameTable& names, const ModelConfig& config) {
  if (config.experts.count == 0) return;
  names[tensor::kRouter] = "block_sparse_moe.router";
  names[tensor::kExpertGateUp] = "block_sparse_moe.experts.gate_up_proj";
  names[tensor::kExpertDown] = "block_sparse_moe.experts.down_proj";
  names[tensor::kSharedGateUp] = "shared_mlp.input_linear",
  names[tensor::kSharedDown] = "shared_mlp.output_linear";
}

void granite_swa_gguf_names(NameTable& names, const ModelConfig& config) {
  names[tensor::kExpertGateUp] = "ffn_gate_up_exps.weight";
  if (config.experts.shared_dim > 0) names[tensor::kSharedGateUp] = "ffn_up_shexp";
}

void describe_granite_swa(ConfigWriter& writer, const ModelConfig& config) {
  describe_granite(writer, config);
  describe_biases(writer, config);
  nlohmann::json thetas = nlohmann::json::array(), rotated = nlohmann::json::array();
  for (const LayerConfig& layer : config.layers) {
    thetas.push_back(layer.rope < 0 ? 0.0f : config.ropes[static_cast<size_t>(layer.rope)].theta);
    rotated.push_back(layer.rope >= 0);
  }
  writer.set({"", "layer_rope_theta"}, thetas);
  writer.set({"attention.rope_pattern", ""}, rotated);
  if (config.experts.shared_dim > 0)
    writer.set({"expert_shared_feed_forward_length", "shared_intermediate_size"},
               config.experts.shared_dim);
}

}  // namespace

extern constinit const Architecture kGraniteSwa = {
    .name = "granite_swa",
    .title = "Granite with windows (also `granitemoe_swa`)",
    .hf_types = {"granite_swa", "GraniteSWAForCausalLM", "granitemoe_swa",
                 "GraniteMoeSWAForCausalLM"},
    .configure = configure_granite_swa,
    .hf_names = granite_swa_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"rms_norm_eps": 1e-5, "tie_word_embeddings": true, "num_key_value_heads": 4})",
    .describe = describe_granite_swa,
    .gguf_names = granite_swa_gguf_names,
    .gguf_pairs = true,
};

}  // namespace penstock
