// Mixtures with windows in some layers: Mellum 2 (a rope for each kind of layer), Flint and
// Kolibri (layers without a window are not rotated).
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

// Sets the windows of the layers selected by `slides`, unless the file lists the kinds of layers.
template <class IsSliding>
void read_default_windows(ConfigReader& reader, ModelConfig& config, const IsSliding& slides) {
  read_windows(reader, config, 0);
  if (reader.has({"attention.sliding_window_pattern", "layer_types"})) return;
  for (int i = 0; i < config.n_layers; ++i) {
    if (!slides(i)) config.layers[static_cast<size_t>(i)].window = 0;
  }
}

void rotate_only_windows(ModelConfig& config) {
  for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? 0 : -1;
}

void read_shared_width(ConfigReader& reader, ModelConfig& config) {
  config.experts.shared_dim =
      reader.integer({"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}, 0,
                     1 << 20, config.experts.ffn_dim);
}

void describe_layers(ConfigWriter& writer, const ModelConfig& config) {
  std::vector<std::string> types;
  for (const LayerConfig& layer : config.layers)
    types.emplace_back(layer.window > 0 ? "sliding_attention" : "full_attention");
  writer.set({"", "layer_types"}, types);
  writer.set({"", "norm_topk_prob"}, config.experts.routing.normalize);
  describe_biases(writer, config);
}

void configure_mellum(ConfigReader& reader, ModelConfig& config) {
  config.attention.qk_norm = QkNorm::kHead;
  read_default_windows(reader, config, [](int) { return false; });
  config.ropes[0].theta = 5e5f;
  read_local_rope(reader, config);
  read_experts(reader, config);
  config.experts.routing.normalize = reader.flag({"expert_weights_norm", "norm_topk_prob"}, true);
  read_mlp_layer_types(reader, config);
}

void describe_mellum(ConfigWriter& writer, const ModelConfig& config) {
  describe_layers(writer, config);
  describe_mlp_layer_types(writer, config);
  describe_local_rope(writer, config);
}

void configure_flint(ConfigReader& reader, ModelConfig& config) {
  config.attention.qk_norm = QkNorm::kHead;
  config.attention.sinks = true;
  read_default_windows(reader, config, [&config](int i) {
    return i >= 2 && i % 4 != 1 && i != config.n_layers - 1;
  });
  rotate_only_windows(config);
  read_experts(reader, config);
  config.experts.routing.score = RouterScore::kSigmoid;
  config.experts.routing.normalize = reader.flag({"expert_weights_norm", "norm_topk_prob"}, true);
  read_sparse_layers(reader, config);
  read_shared_width(reader, config);
}

void describe_flint(ConfigWriter& writer, const ModelConfig& config) {
  describe_layers(writer, config);
  std::vector<int> dense;
  for (int i = 0; i < config.n_layers; ++i) {
    if (!config.layers[static_cast<size_t>(i)].moe) dense.push_back(i);
  }
  writer.set({"", "mlp_only_layers"}, dense);
  writer.set({"", "shared_expert_intermediate_size"}, config.experts.shared_dim);
}

void flint_names(NameTable& names, const ModelConfig&) {
  names[tensor::kSinks] = "self_attn.softmax_offset";
  names[tensor::kSharedGate] = "mlp.shared_expert.gate_proj";
  names[tensor::kSharedUp] = "mlp.shared_expert.up_proj";
  names[tensor::kSharedDown] = "mlp.shared_expert.down_proj";
}

// Every fifth layer has full attention. Experts are chosen by their logits and a bias.
void configure_kolibri(ConfigReader& reader, ModelConfig& config) {
  config.residual.norms = NormPlacement::kBoth;
  config.attention.qk_norm = QkNorm::kHead;
  read_default_windows(reader, config, [](int i) { return (i + 1) % 5 != 0; });
  if (reader.integer({"attention.sliding_window", "sliding_window"}, 0, 1 << 30, 0) > 0)
    rotate_only_windows(config);
  read_experts(reader, config);
  config.experts.routing.score = RouterScore::kSigmoid;
  config.experts.routing.by_logit = true;
  config.experts.routing.normalize = reader.flag({"expert_weights_norm", "norm_topk_prob"}, false);
  config.experts.selection_bias = true;
  read_shared_width(reader, config);
}

void describe_kolibri(ConfigWriter& writer, const ModelConfig& config) {
  describe_layers(writer, config);
  writer.set({"", "shared_expert_intermediate_size"}, config.experts.shared_dim);
}

void kolibri_names(NameTable& names, const ModelConfig&) {
  names[tensor::kAttnPostNorm] = "post_attn_norm";
  names[tensor::kFfnNorm] = "post_attention_layernorm";
  names[tensor::kFfnPostNorm] = "post_ffn_norm";
  names[tensor::kSelectionBias] = "moe.router.expert_bias";
}

}  // namespace

extern constinit const Architecture kMellum = {
    .name = "mellum",
    .title = "Mellum 2",
    .hf_types = {"mellum", "MellumForCausalLM"},
    .configure = configure_mellum,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 4, "sliding_window": 1024,
    "num_experts_per_tok": 8, "moe_intermediate_size": 896})",
    .describe = describe_mellum,
};

extern constinit const Architecture kFlint = {
    .name = "flint",
    .title = "Flint",
    .hf_types = {"flint", "FlintForCausalLM"},
    .directories_only = true,
    .configure = configure_flint,
    .hf_names = flint_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 4, "sliding_window": 513,
    "num_experts": 256, "num_experts_per_tok": 6, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 1024, "mlp_only_layers": [0, 1]})",
    .describe = describe_flint,
};

extern constinit const Architecture kKolibri = {
    .name = "kolibri1",
    .title = "Kolibri 1",
    .hf_types = {"kolibri1", "Kolibri1ForCausalLM"},
    .directories_only = true,
    .configure = configure_kolibri,
    .hf_names = kolibri_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 4, "sliding_window": 513,
    "num_experts_per_tok": 6, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512})",
    .describe = describe_kolibri,
};

}  // namespace penstock
