// Readers of configurations that several architectures share: positions, windows, layer norms.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

void drop_ropes(ModelConfig& config) {
  config.ropes.clear();
  for (LayerConfig& layer : config.layers) layer.rope = -1;
}

void read_windows(ConfigReader& reader, ModelConfig& config, int pattern, int default_window) {
  const int window =
      reader.integer({"attention.sliding_window", "sliding_window"}, 0, 1 << 30, default_window);
  const Key list_key{"attention.sliding_window_pattern", "layer_types"};
  const nlohmann::json* list = reader.find(list_key);
  if (list != nullptr && list->is_number()) {
    pattern = reader.integer(list_key, 0, 1024);
    list = nullptr;
  }
  // GGUF lists layers that predict further tokens, too.
  const size_t further = reader.gguf() ? static_cast<size_t>(config.n_next_token_layers) : 0;
  if (list != nullptr && (!list->is_array() || list->size() < config.layers.size() ||
                          list->size() > config.layers.size() + further)) {
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("{}: expected a list of {} layers",
                            reader.gguf() ? list_key.gguf : list_key.hf, config.layers.size()));
    return;
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    bool sliding = pattern < 2 || (i + 1) % static_cast<size_t>(pattern) != 0;
    if (list != nullptr) {
      const nlohmann::json& item = (*list)[i];
      if (item.is_string() && item != "sliding_attention" && item != "full_attention") {
        reader.fail(
            ErrorCode::kUnsupported,
            fmt::format("layer_types: expected sliding_attention or full_attention, got {}",
                        item.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
      }
      sliding = item.is_boolean()  ? item.get<bool>()
                : item.is_number() ? item != 0
                                   : item == "sliding_attention";
    }
    config.layers[i].window = sliding ? window : 0;
  }
}

void read_layer_norm(ConfigReader& reader, ModelConfig& config) {
  config.norm.layer_norm = true;
  const std::string_view hf =
      reader.has({"", "layer_norm_epsilon"}) ? "layer_norm_epsilon" : "layer_norm_eps";
  config.norm.eps = reader.number({"attention.layer_norm_epsilon", hf}, 0.0f, 1.0f, 1e-5f);
}

void describe_layer_norm(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"attention.layer_norm_epsilon", "layer_norm_eps"}, config.norm.eps);
  writer.set({"", "layer_norm_epsilon"}, config.norm.eps);
  writer.erase({"attention.layer_norm_rms_epsilon", "rms_norm_eps"});
}

void read_clip_qkv(ConfigReader& reader, ModelConfig& config) {
  const Key key{"attention.clamp_kqv", "clip_qkv"};
  if (reader.has(key))
    config.attention.clip = reader.number(key, reader.gguf() ? 0.0f : 1e-6f, 1e6f);
}

void describe_clip_qkv(ConfigWriter& writer, const ModelConfig& config) {
  if (config.attention.clip > 0)
    writer.set({"attention.clamp_kqv", "clip_qkv"}, config.attention.clip);
}

}  // namespace penstock
