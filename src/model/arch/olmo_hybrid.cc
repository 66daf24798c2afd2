// OLMo Hybrid: delta networks with norms before the sub-layers in most layers, attention with norms
// behind them in every fourth.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/blocks/delta_net.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostOlmoHeads = 1024, kMostOlmoDim = 4096, kMostOlmoTaps = 64;

DeltaConfig read_delta(ConfigReader& reader, const ModelConfig& config) {
  DeltaConfig delta;
  delta.separate = true;
  delta.norm_eps = 1e-5f;
  delta.taps = reader.integer({"", "linear_conv_kernel_dim"}, 1, kMostOlmoTaps, 4);
  delta.n_key_heads =
      reader.integer({"", "linear_num_key_heads"}, 1, kMostOlmoHeads, config.n_heads);
  delta.n_value_heads =
      reader.integer({"", "linear_num_value_heads"}, 1, kMostOlmoHeads, config.n_heads);
  const int dim = static_cast<int>(0.75 * config.model_dim / delta.n_key_heads);
  delta.key_dim = reader.integer({"", "linear_key_head_dim"}, 1, kMostOlmoDim,
                                 std::clamp(dim, 1, kMostOlmoDim));
  delta.value_dim =
      reader.integer({"", "linear_value_head_dim"}, 1, 2 * kMostOlmoDim, 2 * delta.key_dim);
  delta.write_factor = reader.flag({"", "linear_allow_neg_eigval"}, true) ? 2.0f : 1.0f;
  if (delta.n_value_heads % delta.n_key_heads != 0) {
    reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("linear_num_value_heads: expected a multiple of the {} key heads, got {}",
                    delta.n_key_heads, delta.n_value_heads));
    delta.n_value_heads = delta.n_key_heads;
  }
  return delta;
}

bool is_null_in(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_null();
}

// Published files say by null, for all of rope_parameters or for theta, that nothing is rotated.
void usual_olmo_hybrid(json& object) {
  if (is_null_in(object, "rope_parameters") || is_null_in(object, "rope_theta"))
    object["rope_parameters"] = {{"rope_theta", nullptr}, {"rope_type", "default"}};
}

// Reads which layers attend: those of the list layer_types, else every fourth layer; of fewer than
// four layers the last.
void read_kinds(ConfigReader& reader, ModelConfig& config) {
  const json* list = reader.find({"", "layer_types"});
  const size_t n = config.layers.size();
  if (list != nullptr && (!list->is_array() || list->size() != n))
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("layer_types: expected a list of {} layers", n));
  for (size_t i = 0; i < n; ++i) {
    const json kind = list != nullptr                       ? (*list)[i]
                      : i % 4 == 3 || (n < 4 && i + 1 == n) ? json("full_attention")
                                                            : json("linear_attention");
    if (kind != "full_attention" && kind != "linear_attention")
      return reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("layer_types: expected linear_attention or full_attention, got {}",
                      kind.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
    config.layers[i].attention = kind == "full_attention";
  }
}

void configure_olmo_hybrid(ConfigReader& reader, ModelConfig& config) {
  config.attention.qk_norm = QkNorm::kRow;
  read_kinds(reader, config);
  const json* rope = reader.find({"", "rope_parameters"});
  const bool rotated = rope == nullptr || !is_null_in(*rope, "rope_theta");
  const std::shared_ptr<const Mixer> mixer = delta_net(read_delta(reader, config));
  for (LayerConfig& layer : config.layers) {
    if (!rotated) layer.rope = -1;
    if (layer.attention) {
      layer.norms = NormPlacement::kPost;
    } else {
      layer.mixer = mixer;
    }
  }
}

void describe_olmo_hybrid(ConfigWriter& writer, const ModelConfig& config) {
  json kinds = json::array();
  bool rotated = false;
  for (const LayerConfig& layer : config.layers) {
    kinds.push_back(layer.attention ? "full_attention" : "linear_attention");
    rotated |= layer.attention && layer.rope >= 0;
  }
  writer.set({"", "layer_types"}, kinds);
  if (!rotated) {
    writer.erase({"", "rope_theta"});
    writer.set({"", "rope_parameters"}, {{"rope_theta", nullptr}, {"rope_type", "default"}});
  }
  const DeltaConfig* delta = delta_config(config);
  if (delta == nullptr) return;
  writer.set({"", "linear_conv_kernel_dim"}, delta->taps);
  writer.set({"", "linear_num_key_heads"}, delta->n_key_heads);
  writer.set({"", "linear_num_value_heads"}, delta->n_value_heads);
  writer.set({"", "linear_key_head_dim"}, delta->key_dim);
  writer.set({"", "linear_value_head_dim"}, delta->value_dim);
  writer.set({"", "linear_allow_neg_eigval"}, delta->write_factor == 2.0f);
}

void olmo_hybrid_names(NameTable& names, const ModelConfig&) {
  names[tensor::kAttnNorm] = "attention_layer_norm";
  names[tensor::kFfnNorm] = "feedforward_layer_norm";
  names[tensor::kDeltaZ] = "linear_attn.g_proj", names[tensor::kDeltaA] = "linear_attn.a_proj",
  names[tensor::kDeltaB] = "linear_attn.b_proj";
  names[tensor::kDeltaConv] = "linear_attn.{}_conv1d";
  names[tensor::kDeltaNorm] = "linear_attn.o_norm", names[tensor::kDeltaOut] = "linear_attn.o_proj";
}

}  // namespace

extern constinit const Architecture kOlmoHybrid = {
    .name = "olmo_hybrid",
    .title = "OLMo Hybrid",
    .hf_types = {"olmo_hybrid", "OlmoHybridForCausalLM"},
    .directories_only = true,
    .configure = configure_olmo_hybrid,
    .hf_names = olmo_hybrid_names,
    .forward = decoder_forward,
    .hf_usual = usual_olmo_hybrid,
    .describe = describe_olmo_hybrid,
};

}  // namespace penstock
