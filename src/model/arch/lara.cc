// Lara Mini: gated delta networks, attention with a window and rotation, and attention to all tokens
// without rotation; experts with a shared one in every layer.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/blocks/delta_net.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr std::string_view kPublishedKinds[] = {"linear_attention", "sliding_attention",
                                                "linear_attention", "full_attention",
                                                "sliding_attention"};

// Kinds of layers as published, where the file does not list them.
void usual_lara(json& object) {
  const auto list = object.find("layer_types");
  const json layers = object.value("num_hidden_layers", json(34));
  if ((list != object.end() && !list->is_null()) || !layers.is_number_integer() || layers > 1024)
    return;
  json kinds = json::array();
  for (int i = 0; i < layers.get<int>(); ++i)
    kinds.push_back(kPublishedKinds[static_cast<size_t>(i) % std::size(kPublishedKinds)]);
  object["layer_types"] = kinds;
}

void read_lara_layers(ConfigReader& reader, ModelConfig& config) {
  const int window = reader.integer({"", "sliding_window"}, 1, 1 << 30, 512);
  const json* kinds = reader.find({"", "layer_types"});
  const size_t n = config.layers.size();
  if (kinds == nullptr || !kinds->is_array() || kinds->size() != n)
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("layer_types: expected a list of {} layers", n));
  DeltaConfig delta = read_qwen_delta(reader);
  delta.one_projection = true;
  const std::shared_ptr<const Mixer> mixer = delta_net(delta);
  for (size_t i = 0; i < n; ++i) {
    LayerConfig& layer = config.layers[i];
    const json& kind = (*kinds)[i];
    if (std::ranges::find(kPublishedKinds, kind) == std::end(kPublishedKinds))
      return reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("layer_types: expected linear_attention, sliding_attention or "
                      "full_attention, got {}",
                      kind.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
    layer.window = kind == "sliding_attention" ? window : 0;
    if (layer.window == 0) layer.rope = -1;
    layer.attention = kind != "linear_attention";
    if (!layer.attention) layer.mixer = mixer;
  }
}

void configure_lara(ConfigReader& reader, ModelConfig& config) {
  config.attention.qk_norm = QkNorm::kHead;
  read_lara_layers(reader, config);
  read_experts(reader, config);
  config.experts.routing.normalize = reader.flag({"", "norm_topk_prob"}, true);
  config.experts.shared_dim =
      reader.integer({"", "shared_expert_intermediate_size"}, 0, 1 << 20, 512);
}

void lara_names(NameTable& names, const ModelConfig&) {
  names[tensor::kSharedGate] = "mlp.shared_expert.gate_proj";
  names[tensor::kSharedUp] = "mlp.shared_expert.up_proj";
  names[tensor::kSharedDown] = "mlp.shared_expert.down_proj";
  names[tensor::kExpertGateUp] = "mlp.experts.gate_up_proj";
  names[tensor::kFusedExpertDown] = "mlp.experts.down_proj";
  names[tensor::kDeltaQkvz] = "linear_attn.in_proj";
  names[tensor::kDeltaNorm] = "linear_attn.out_norm";
}

}  // namespace

extern constinit const Architecture kLara = {
    .name = "lara_mini",
    .title = "Lara Mini",
    .hf_types = {"lara_mini", "LaraMiniForCausalLM"},
    .directories_only = true,
    .configure = configure_lara,
    .hf_names = lara_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_attention_heads": 16, "num_key_value_heads": 4,
    "num_experts": 128, "num_experts_per_tok": 4, "moe_intermediate_size": 512,
    "linear_num_key_heads": 8, "linear_num_value_heads": 16, "tie_word_embeddings": true})",
    .hf_usual = usual_lara,
};

}  // namespace penstock
