// Laguna: layers with different numbers of query heads, softplus gates behind attention, a rope for
// each kind of layer, experts behind the first layer.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

constexpr int kMostQueryHeads = 1024;

void read_heads_by_layer(ConfigReader& reader, ModelConfig& config) {
  const Key key{"", "num_attention_heads_per_layer"};
  if (!reader.has(key)) return;
  const std::vector<int> heads = reader.integers(key, 1, kMostQueryHeads);
  if (heads.size() != config.layers.size()) {
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("num_attention_heads_per_layer: expected {} numbers, got {}",
                                   config.layers.size(), heads.size()));
  }
  for (size_t i = 0; i < heads.size(); ++i) config.layers[i].n_heads = heads[i];
}

// Reads `gating`: true or "per-head" for a gate per head, else per value. GGUF files show it by the
// matrix.
void read_gates(ConfigReader& reader, ModelConfig& config) {
  const nlohmann::json* gating = reader.find({"", "gating"});
  const bool by_head = reader.gguf()
                           ? reader.rows_of("blk.0.attn_gate.weight") <= config.n_heads_of(0)
                           : gating == nullptr || *gating == true || *gating == "per-head";
  (by_head ? config.attention.head_gates : config.attention.value_gates) = true;
  config.attention.gate = Activation::kSoftplus;
  if (reader.has({"", "gating_types"}))
    reader.fail(ErrorCode::kUnsupported, "gating_types: gates by layer are not supported");
}

// Without a list, all layers of a directory have full attention; in GGUF files the first and then
// every fourth one.
void read_layers(ConfigReader& reader, ModelConfig& config) {
  read_windows(reader, config, 0);
  if (!reader.has({"attention.sliding_window_pattern", "layer_types"})) {
    for (size_t i = 0; i < config.layers.size(); ++i) {
      if (!reader.gguf() || i % 4 == 0) config.layers[i].window = 0;
    }
  }
  if (reader.gguf() || reader.has({"", "rope_parameters"})) {
    read_local_rope(reader, config);
    config.ropes[1].rotary_dim = reader.integer({"rope.dimension_count_swa", ""}, 2,
                                                config.head_dim, config.ropes[1].rotary_dim);
    return;
  }
  config.ropes[0].theta = 5e5f;
  config.ropes[0].rotary_dim = config.head_dim / 2;
  RopeConfig local;
  local.rotary_dim = config.head_dim;
  config.ropes.push_back(local);
  for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? 1 : 0;
}

void configure_laguna(ConfigReader& reader, ModelConfig& config) {
  config.attention.qk_norm = QkNorm::kHead;
  read_heads_by_layer(reader, config);
  read_gates(reader, config);
  read_layers(reader, config);
  read_experts(reader, config);
  const int n_dense = reader.integer({"leading_dense_block_count", ""}, 0, config.n_layers, 1);
  for (int i = 0; i < n_dense; ++i) config.layers[static_cast<size_t>(i)].moe = false;
  read_mlp_layer_types(reader, config);
  reader.expect_flag("moe_apply_router_weight_on_input", false);
  ExpertRouting& routing = config.experts.routing;
  routing.score = RouterScore::kSigmoid;
  routing.scale =
      reader.number({"expert_weights_scale", "moe_routed_scaling_factor"}, -1e6f, 1e6f, 1.0f);
  config.experts.router_softcap =
      reader.number({"", "moe_router_logit_softcapping"}, 0.0f, 1e6f, 0.0f);
  config.experts.selection_bias = true;
  config.experts.shared_dim =
      reader.integer({"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}, 1,
                     1 << 20, config.experts.ffn_dim);
}

void describe_laguna(ConfigWriter& writer, const ModelConfig& config) {
  std::vector<int> heads;
  std::vector<std::string> types;
  for (int i = 0; i < config.n_layers; ++i) {
    heads.push_back(config.n_heads_of(i));
    types.emplace_back(config.layers[static_cast<size_t>(i)].window > 0 ? "sliding_attention"
                                                                        : "full_attention");
  }
  writer.set({"attention.head_count", "num_attention_heads_per_layer"}, heads);
  writer.set({"leading_dense_block_count", ""}, leading_dense_layers(config));
  writer.set({"expert_gating_func", ""}, 2);
  writer.set({"expert_weights_norm", ""}, true);
  writer.set({"expert_shared_feed_forward_length", ""}, config.experts.shared_dim);
  writer.set({"rope.dimension_count_swa", ""}, config.ropes[1].rotary_dim);
  writer.set({"", "layer_types"}, types);
  writer.set({"", "gating"}, config.attention.head_gates ? "per-head" : "per-element");
  writer.set({"expert_weights_scale", "moe_routed_scaling_factor"}, config.experts.routing.scale);
  writer.set({"", "moe_router_logit_softcapping"}, config.experts.router_softcap);
  writer.set({"", "shared_expert_intermediate_size"}, config.experts.shared_dim);
  describe_mlp_layer_types(writer, config);
  describe_local_rope(writer, config);
  describe_biases(writer, config);
}

void laguna_names(NameTable& names, const ModelConfig&) {
  names[tensor::kSelectionBias] = "mlp.experts.e_score_correction_bias";
  names[tensor::kSharedGate] = "mlp.shared_expert.gate_proj";
  names[tensor::kSharedUp] = "mlp.shared_expert.up_proj";
  names[tensor::kSharedDown] = "mlp.shared_expert.down_proj";
}

}  // namespace

extern constinit const Architecture kLaguna = {
    .name = "laguna",
    .title = "Laguna",
    .hf_types = {"laguna", "LagunaForCausalLM"},
    .configure = configure_laguna,
    .hf_names = laguna_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 8, "sliding_window": 512,
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512})",
    .describe = describe_laguna,
    .partial_rope = true,
    .heads_by_layer = true,
};

}  // namespace penstock
