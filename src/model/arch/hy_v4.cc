// Hy4: latent attention to selected tokens, with sinks and gated values; experts behind dense layers
// whose products are bounded; between streams that are not mixed. Rotated pairs are adjacent, as vLLM
// and llama.cpp read the published files; transformers 5.24 takes the same rows for halves.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

bool hy4_lacks(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null();
}

// Every fourth layer has an indexer, and so has the first; all but the first have experts. The file's
// number of KV heads means nothing, and its size of heads is that of the rotated part.
void usual_hy4(json& object) {
  object.erase("num_key_value_heads");
  object.erase("head_dim");
  const auto kinds = object.find("layer_types");
  if (kinds != object.end() && kinds->is_array())
    for (json& kind : *kinds)
      if (kind == "sparse_attention" || kind == "sparse") kind = "indexed_attention";
  const json layers = object.value("num_hidden_layers", json(34));
  const int n_layers =
      layers.is_number_integer() && layers > 0 && layers < 1024 ? layers.get<int>() : 0;
  json indexers = json::array();
  for (int i = 0; i < n_layers; ++i) indexers.push_back(i == 0 || i % 4 == 1 ? "full" : "shared");
  if (hy4_lacks(object, "indexer_types")) object["indexer_types"] = indexers;
  if (hy4_lacks(object, "mlp_layer_types") && hy4_lacks(object, "first_k_dense_replace"))
    object["first_k_dense_replace"] = 1;
}

// What the published file says and transformers assumes.
void check_hy4(ConfigReader& reader) {
  for (const char* key : {"enable_ihc", "gated_mla", "learnable_sink", "rope_interleave"})
    reader.expect_flag(key, true);
  reader.expect_text("gating_type", "elementwise");
  const json* kinds = reader.find({"", "layer_types"});
  if (kinds != nullptr && kinds->is_array() &&
      std::ranges::find(*kinds, "full_attention") != kinds->end())
    reader.fail(ErrorCode::kUnsupported,
                "layer_types: expected layers that select tokens only, got full_attention");
}

void read_hy4_bounds(ConfigReader& reader, ModelConfig& config) {
  ActivationFunction capped(Activation::kCappedSilu);
  if (!reader.gguf()) {
    capped.parameters[0] = reader.number({"", "swiglu_limit"}, 1e-3f, 1e6f, 10.0f);
    for (LayerConfig& layer : config.layers) layer.expert_activation = capped;
    return;
  }
  const Key key{"swiglu_clamp_exp", ""};
  const std::vector<float> bounds = reader.numbers(key, config.layers.size());
  if (!bounds.empty() && bounds.size() != config.layers.size())
    return reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("{}: expected {} numbers", reader.name(key), config.layers.size()));
  for (size_t i = 0; i < bounds.size(); ++i) {
    capped.parameters[0] = bounds[i];
    if (bounds[i] > 0) config.layers[i].expert_activation = capped;
  }
}

void configure_hy4(ConfigReader& reader, ModelConfig& config) {
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: expected silu");
  check_hy4(reader);
  configure_glm4_moe_lite(reader, config);
  config.attention.sinks = config.attention.value_gates = true;
  for (LayerConfig& layer : config.layers) layer.activation = config.ffn.activation;
  read_hy4_bounds(reader, config);
  // GGUF files without an indexer attend to everything.
  if (!reader.gguf() || reader.has({"attention.indexer.top_k", ""})) {
    read_indexers(reader, config);
    config.latent.indexer.rotates_last = true;
    config.latent.indexer.norm_eps = config.norm.eps;
  }
  MixedStreamsConfig& streams = config.mixed_streams;
  streams.mixes = false, streams.ends_by_shares = true;
  streams.count = reader.integer({"hyper_connection.count", "hc_mult"}, 1, kMaxMixedStreams,
                                 reader.gguf() ? std::nullopt : std::optional(4));
  streams.eps = streams.write_eps =
      reader.number({"hyper_connection.epsilon", "hc_eps"}, 0.0f, 1.0f, 1e-6f);
  streams.magnitude =
      reader.number({"hyper_connection.magnitude", "hc_magnitude"}, 0.0f, 1e6f, 2.0f);
}

void describe_hy4(ConfigWriter& writer, const ModelConfig& config) {
  describe_glm_dsa(writer, config);
  describe_mlp_layer_types(writer, config);
  json bounds = json::array();
  for (const LayerConfig& layer : config.layers)
    bounds.push_back(layer.expert_activation ? layer.expert_activation->parameters[0] : 0.0f);
  writer.set({"swiglu_clamp_exp", ""}, bounds);
  writer.set({"", "swiglu_limit"}, bounds[0]);
  const MixedStreamsConfig& streams = config.mixed_streams;
  writer.set({"hyper_connection.count", "hc_mult"}, streams.count);
  writer.set({"hyper_connection.epsilon", "hc_eps"}, streams.eps);
  writer.set({"hyper_connection.magnitude", "hc_magnitude"}, streams.magnitude);
}

void hy4_names(NameTable& names, const ModelConfig&) {
  names[tensor::kSinks] = "self_attn.learnable_sink_param";
  names[tensor::kGates] = "self_attn.linear_gate";
  names[tensor::kExpertGateUp] = "mlp.experts.gate_up_proj";
  names[tensor::kFusedExpertDown] = "mlp.experts.down_proj";
  names[tensor::kAttnMixWeights] = "hc_attn_layer.hc_pre.hc_fn";
  names[tensor::kAttnMixBase] = "hc_attn_layer.hc_pre.hc_base";
  names[tensor::kAttnMixScale] = "hc_attn_layer.hc_pre.hc_scale";
  names[tensor::kFfnMixWeights] = "hc_mlp_layer.hc_pre.hc_fn";
  names[tensor::kFfnMixBase] = "hc_mlp_layer.hc_pre.hc_base";
  names[tensor::kFfnMixScale] = "hc_mlp_layer.hc_pre.hc_scale";
  names[tensor::kLastMixWeights] = "hc_head.hc_head_fn";
  names[tensor::kLastMixBase] = "hc_head.hc_head_base";
  names[tensor::kLastMixScale] = "hc_head.hc_head_scale";
}

}  // namespace

extern constinit const Architecture kHy4 = {
    .name = "hy_v4",
    .title = "Hy4 (sparse attention)",
    .hf_types = {"hy_v4", "HYV4ForCausalLM"},
    .configure = configure_hy4,
    .hf_names = hy4_names,
    .forward = mixed_streams_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 768, "routed_scaling_factor": 2.827, "index_topk": 2048,
    "index_n_heads": 16, "index_head_dim": 128})",
    .hf_usual = usual_hy4,
    .describe = describe_hy4,
    .partial_rope = true,
};

}  // namespace penstock
