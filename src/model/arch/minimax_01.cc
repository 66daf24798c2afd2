// MiniMax-01: lightning attention in most layers, experts, and sub-layers that add to the norm that
// they read.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/blocks/lightning.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostLightningHead = 4096;

// MiniMax's own code numbers kinds of layers; transformers' default is every second one.
void usual_minimax_01(json& object) {
  const auto numbers = object.find("attn_type_list");
  if (numbers != object.end() && numbers->is_array()) {
    json kinds = json::array();
    for (const json& each : *numbers)
      kinds.push_back(each == 0 ? "linear_attention" : each == 1 ? "full_attention" : each);
    object["layer_types"] = kinds;
  }
  const json layers = object.value("num_hidden_layers", json(32));
  if (object.contains("layer_types") || !layers.is_number_integer() || layers > 1024) return;
  json kinds = json::array();
  for (int i = 0; i < layers.get<int>(); ++i)
    kinds.push_back(i % 2 == 0 ? "full_attention" : "linear_attention");
  object["layer_types"] = kinds;
}

// Whether each layer attends to all tokens; of GGUF files without a list every eighth one does.
std::vector<bool> read_minimax_kinds(ConfigReader& reader, const ModelConfig& config) {
  const size_t n = config.layers.size();
  std::vector<bool> full;
  if (reader.gguf()) {
    const int every = reader.integer({"full_attention_interval", ""}, 1, 1024, 8);
    for (int i = 0; i < config.n_layers; ++i) full.push_back((i + 1) % every == 0);
    const Key key{"attention.recurrent_layers", ""};
    const json* list = reader.find(key);
    for (size_t i = 0; list != nullptr && list->is_array() && i < n && i < list->size(); ++i)
      full[i] = (*list)[i] == false || (*list)[i] == 0;
    if (list != nullptr && (!list->is_array() || list->size() < n))
      reader.fail(ErrorCode::kCorruptFile,
                  fmt::format("{}: expected a list of {} layers", reader.name(key), n));
    return full;
  }
  const json* kinds = reader.find({"", "layer_types"});
  for (const json& kind : kinds != nullptr && kinds->is_array() ? *kinds : json::array())
    if (kind == "linear_attention" || kind == "full_attention")
      full.push_back(kind == "full_attention");
  if (full.size() != n)
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("layer_types: expected linear_attention or full_attention for {} layers", n));
  return full;
}

// One factor of what sub-layers add, and one of the norms to which they add it.
void read_minimax_factors(ConfigReader& reader, ModelConfig& config) {
  config.residual.adds_to_norm = true;
  if (reader.gguf()) {
    config.residual.norm_factor = reader.number({"residual_scale", ""}, -1e6f, 1e6f);
    return;
  }
  const auto read = [&](std::string_view alpha_or_beta) {
    const auto one = [&](std::string_view of) {
      return reader.number({"", fmt::format("{}_{}_factor", of, alpha_or_beta)}, -1e6f, 1e6f, 1.0f);
    };
    const float full = one("full_attn");
    if (one("linear_attn") != full || one("mlp") != full)
      reader.fail(ErrorCode::kUnsupported,
                  fmt::format("{} factors: expected the same of full_attn, linear_attn and mlp",
                              alpha_or_beta));
    return full;
  };
  config.residual.norm_factor = read("alpha");
  config.residual.scale = read("beta");
}

void configure_minimax_01(ConfigReader& reader, ModelConfig& config) {
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: expected silu");
  reader.expect_flag("postnorm", true);
  if (reader.integer({"", "shared_intermediate_size"}, 0, 1 << 30, 0) != 0)
    reader.fail(ErrorCode::kUnsupported, "shared_intermediate_size: expected 0");
  read_minimax_factors(reader, config);
  read_experts(reader, config);
  const int turned =
      reader.integer({"rope.dimension_count", "rotary_dim"}, 2, config.head_dim, config.head_dim);
  config.ropes[0].rotary_dim = turned / 2 * 2;
  const std::vector<bool> full = read_minimax_kinds(reader, config);
  if (config.head_dim > kMostLightningHead || full.size() != config.layers.size()) return;
  const std::shared_ptr<const Mixer> mixer = lightning(config.n_heads, config.head_dim);
  for (size_t i = 0; i < full.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.attention = full[i];
    if (!full[i]) layer.mixer = mixer, layer.rope = -1;
  }
}

}  // namespace

extern constinit const Architecture kMiniMax01 = {
    .name = "minimax-01",
    .title = "MiniMax-01, M1 (lightning attention)",
    .hf_types = {"minimax", "MiniMaxForCausalLM", "minimax_text_01", "MiniMaxText01ForCausalLM",
                 "minimax_m1", "MiniMaxM1ForCausalLM"},
    .configure = configure_minimax_01,
    .hf_names = mixtral_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8,
    "num_local_experts": 8, "num_experts_per_tok": 2})",
    .hf_aliases = R"({"layernorm_full_attention_alpha": "full_attn_alpha_factor",
    "layernorm_full_attention_beta": "full_attn_beta_factor",
    "layernorm_linear_attention_alpha": "linear_attn_alpha_factor",
    "layernorm_linear_attention_beta": "linear_attn_beta_factor", "layernorm_mlp_alpha": "mlp_alpha_factor",
    "layernorm_mlp_beta": "mlp_beta_factor"})",
    .hf_usual = usual_minimax_01,
};

}  // namespace penstock
