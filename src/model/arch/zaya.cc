// ZAYA1: attention over convolved queries and keys, experts of which one or none is chosen by a
// feed-forward that reads the choice of the layer before, and a stream scaled by column.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

// Kinds of layers, and their rotations, by the usual words.
void usual_zaya(json& object) {
  const auto usual = [](const json& kind) {
    return kind == "hybrid"           ? json("full_attention")
           : kind == "hybrid_sliding" ? json("sliding_attention")
                                      : kind;
  };
  const auto kinds = object.find("layer_types");
  if (kinds != object.end() && kinds->is_array()) {
    for (json& kind : *kinds) kind = usual(kind);
  }
  const auto ropes = object.find("rope_parameters");
  json of_kinds = json::object();
  const bool given = ropes != object.end() && ropes->is_object();
  for (const auto& [kind, theta] : {std::pair{"hybrid", 5e6}, std::pair{"hybrid_sliding", 1e4}}) {
    const auto found = given ? ropes->find(kind) : json::iterator();
    of_kinds[usual(kind).get<std::string>()] =
        given && found != ropes->end()
            ? json(*found)
            : json{{"rope_type", "default"}, {"rope_theta", theta}, {"partial_rotary_factor", 0.5}};
  }
  // One rotation for both kinds is not what the published code has; it is refused by its rope_type.
  const bool flat = given && !ropes->contains("hybrid") && !ropes->contains("hybrid_sliding") &&
                    ropes->contains("rope_theta");
  if (flat || object.contains("rope_theta"))
    of_kinds["full_attention"]["rope_type"] = "one of both kinds of layers";
  object["rope_parameters"] = of_kinds;
}

void configure_zaya(ConfigReader& reader, ModelConfig& config) {
  constexpr int kMostTaps = 64, kMostRouterDim = 1 << 16, kMostWindow = 1 << 30;
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: expected silu");
  if (config.n_kv_heads * config.head_dim % 2 != 0)
    reader.fail(
        ErrorCode::kUnsupported,
        "num_key_value_heads: expected an even number of values, of which a half is delayed");
  config.convolved.taps = reader.integer({"", "cca_time0"}, 1, kMostTaps, 2);
  config.convolved.head_taps = reader.integer({"", "cca_time1"}, 1, kMostTaps, 2);
  if (reader.has({"", "layer_types"})) {
    const bool slides = reader.has({"", "sliding_window"});
    read_windows(reader, config, 0, slides ? kMostWindow : 0);
    const json& kinds = *reader.find({"", "layer_types"});
    if (!slides && kinds.is_array() && std::ranges::find(kinds, "sliding_attention") != kinds.end())
      reader.fail(ErrorCode::kCorruptFile, "sliding_window: expected for layers hybrid_sliding");
  }
  read_local_rope(reader, config);
  config.residual.weighing = ResidualWeighing::kScales;
  read_experts(reader, config);
  ExpertsConfig& experts = config.experts;
  experts.n_identities = 1;
  experts.idle = experts.selection_bias = true;
  experts.routing.normalize = false;
  if (experts.routing.n_active != 1)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("num_experts_per_tok: expected 1, got {}", experts.routing.n_active));
  experts.router_dim = reader.integer({"", "router_hidden_size"}, 1, kMostRouterDim, 256);
  config.carried_dim = experts.router_dim;
}

void zaya_names(NameTable& names, const ModelConfig&) {
  names[tensor::kSelectionBias] = "mlp.gate.balancing_biases";
  names[tensor::kExpertGateUp] = "mlp.experts.gate_up_proj";
  names[tensor::kFusedExpertDown] = "mlp.experts.down_proj";
}

constexpr MeaningfulKey kZayaKeys[] = {{{"", "cca_time0"}, 0}};

}  // namespace

extern constinit const Architecture kZaya = {
    .name = "zaya",
    .title = "ZAYA1 (CPU)",
    .hf_types = {"zaya", "ZayaForCausalLM"},
    .directories_only = true,
    .configure = configure_zaya,
    .hf_names = zaya_names,
    .forward = weighted_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "rms_norm_eps": 1e-5, "head_dim": 128,
    "num_key_value_heads": 2, "num_experts": 16, "num_experts_per_tok": 1, "moe_intermediate_size": 2048})",
    .hf_usual = usual_zaya,
    .partial_rope = true,
    .own_keys = kZayaKeys,
};

}  // namespace penstock
