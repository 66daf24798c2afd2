// Layers of one sub-layer: Mamba 2, which has scans only; Nemotron-H and Nemotron 3, whose layers
// are a scan, attention (without rotation), a feed-forward or experts without gates, which may read
// a projection of the stream.
#include <nlohmann/json.hpp>

#include "model/arch/scans.h"
#include "model/forward/decoder.h"

namespace penstock {

namespace {

void configure_mamba2(ConfigReader& reader, ModelConfig& config) {
  config.residual.one_mixer = true;
  config.ffn_dim = 0;
  for (LayerConfig& layer : config.layers) {
    layer = {};
    layer.attention = false;
    layer.rope = -1;
  }
  const std::string activation = reader.text({"", "hidden_act"}, "silu");
  if (activation != "silu")
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("hidden_act: expected silu, got '{}'", activation));
  const std::shared_ptr<const Mixer> mixer = scan(read_scan(reader, config));
  for (LayerConfig& layer : config.layers) layer.mixer = mixer;
}

// Returns the width of dense layers, which GGUF files list together with that of experts.
int dense_width(ConfigReader& reader, const ModelConfig& config) {
  const std::vector<int> widths = reader.integers({"feed_forward_length", ""}, 0, 1 << 20);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    if (layer.attention || layer.carries_state() || layer.moe) continue;
    return i < widths.size() ? widths[i] : config.ffn_dim;
  }
  return 0;
}

void read_nemotron_experts(ConfigReader& reader, ModelConfig& config) {
  std::vector<LayerConfig> layers = config.layers;
  read_experts(reader, config);
  config.layers = std::move(layers);  // needed below: which layers have experts
  read_sigmoid_routing(reader, config);
  config.experts.shared_dim = reader.integer(
      {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"}, 1, 1 << 20);
  config.experts.latent_dim = reader.integer({"moe_latent_size", "moe_latent_size"}, 1, 1 << 20, 0);
}

void configure_nemotron_h(ConfigReader& reader, ModelConfig& config) {
  config.residual.one_mixer = true;
  config.ffn.gated = false;
  // transformers never ties embeddings here.
  if (!reader.gguf()) config.embedding.tied = false;
  if (reader.gguf()) config.ffn.activation = Activation::kRelu2;
  const std::string activation = reader.text({"", "mamba_hidden_act"}, "silu");
  if (activation != "silu")
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("mamba_hidden_act: expected silu, got '{}'", activation));
  reader.find({"", "n_routed_experts"});  // mark as read, also if no layer has experts
  if (!reader.gguf() && !reader.has({"", "layer_types"}) &&
      !reader.has({"", "layers_block_type"}) && !reader.has({"", "hybrid_override_pattern"}))
    reader.fail(
        ErrorCode::kCorruptFile,
        "layers_block_type: expected the kind of every layer, here or in hybrid_override_pattern");
  read_scanning_layers(reader, config);
  for (LayerConfig& layer : config.layers) layer.rope = -1, layer.ffn_dim = 0;
  config.ffn_dim = dense_width(reader, config);
  if (std::ranges::any_of(config.layers, &LayerConfig::moe)) {
    if (!reader.gguf()) config.arch = "nemotron_h_moe";  // GGUF's name
    read_nemotron_experts(reader, config);
  }
}

void describe_mamba2(ConfigWriter& writer, const ModelConfig& config) {
  describe_scans(writer, config);
  writer.set({"attention.head_count", ""}, 0);
  writer.erase({"attention.head_count_kv", ""});
  writer.set({"feed_forward_length", ""}, 0);
  for (const std::string_view key :
       {"head_dim", "num_attention_heads", "num_key_value_heads", "intermediate_size"})
    writer.erase({"", key});
}

void describe_nemotron_h(ConfigWriter& writer, const ModelConfig& config) {
  describe_scans(writer, config);
  nlohmann::json widths = nlohmann::json::array(), kinds = nlohmann::json::array();
  for (int i = 0; i < config.n_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const bool feeds = config.has_feed_forward(i);
    widths.push_back(static_cast<uint64_t>(layer.moe ? config.experts.ffn_dim
                                           : feeds   ? config.ffn_dim
                                                     : 0));
    kinds.push_back(layer.moe ? "moe" : feeds ? "mlp" : layer.attention ? "attention" : "mamba");
  }
  writer.set({"feed_forward_length", ""}, widths);
  writer.set({"", "layer_types"}, kinds);
  writer.set({"", "mlp_hidden_act"}, "relu2");
  writer.set({"attention.layer_norm_epsilon", ""}, config.norm.eps);  // llama.cpp's key
  writer.erase({"attention.layer_norm_rms_epsilon", ""});
  if (config.experts.count == 0) return;
  describe_sigmoid_routing(writer, config);
  writer.erase({"", "num_experts"});
  writer.set({"", "n_routed_experts"}, config.experts.count);
  writer.set({"expert_shared_count", "n_shared_experts"}, 1);
  writer.set({"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
             config.experts.shared_dim);
  if (config.experts.latent_dim > 0)
    writer.set({"moe_latent_size", "moe_latent_size"}, config.experts.latent_dim);
}

void mamba2_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"backbone.", "model.", "language_model.backbone.", ""};
  names.embedding = "embeddings", names.final_norm = "norm_f", names[tensor::kAttnNorm] = "norm";
  names[tensor::kQ] = "mixer.q_proj", names[tensor::kK] = "mixer.k_proj",
  names[tensor::kV] = "mixer.v_proj", names[tensor::kO] = "mixer.o_proj";
  names[tensor::kUp] = "mixer.up_proj", names[tensor::kDown] = "mixer.down_proj";
  names[tensor::kSsmIn] = "mixer.in_proj", names[tensor::kSsmConv] = "mixer.conv1d",
  names[tensor::kSsmRate] = "mixer.A_log";
  names[tensor::kSsmSkip] = "mixer.D", names[tensor::kSsmBias] = "mixer.dt_bias",
  names[tensor::kSsmNorm] = "mixer.norm";
  names[tensor::kSsmOut] = "mixer.out_proj";
}

void nemotron_h_names(NameTable& names, const ModelConfig& config) {
  mamba2_names(names, config);
  names[tensor::kRouter] = "mixer.gate",
  names[tensor::kSelectionBias] = "mixer.gate.e_score_correction_bias";
  names[tensor::kExpertsIn] = "mixer.fc1_latent_proj",
  names[tensor::kExpertsOut] = "mixer.fc2_latent_proj";
  names[tensor::kExpertUp] = "mixer.experts.{}.up_proj",
  names[tensor::kExpertDown] = "mixer.experts.{}.down_proj";
  names[tensor::kSharedUp] = "mixer.shared_experts.up_proj",
  names[tensor::kSharedDown] = "mixer.shared_experts.down_proj";
}

}  // namespace

StepOutputs one_mixer_forward(const ModelConfig& config, const ModelWeights& weights,
                              StepShape shape, KvCache& cache, Ops& ops,
                              const ForwardOptions& options) {
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = options.stream != nullptr
                       ? *options.stream
                       : ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  const Tensor normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  begin_stream(config, weights, shape, x, ops, options);
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const NormedInput h{x, norm_params(config, layer.attn_norm), normed};
    ops.prepare(h);
    if (config.has_feed_forward(i)) {
      decoder.feed_forward(i, h, x, nullptr);
    } else {
      decoder.attention(i, h, x, nullptr);
    }
  }
  if (options.stream != nullptr) return {};
  return output_head(config, weights, x, shape, ops, options);
}

namespace {

constexpr std::string_view kNemotronHAliases =
    R"({"mamba_num_heads": "mamba_n_heads", "mamba_head_dim": "mamba_d_head", "n_groups": "mamba_n_groups",
    "ssm_state_size": "mamba_d_state", "conv_kernel": "mamba_d_conv", "mlp_hidden_act": "hidden_act",
    "attention_head_dim": "head_dim", "layer_norm_epsilon": "rms_norm_eps"})";

}  // namespace

extern constinit const Architecture kMamba2 = {
    .name = "mamba2",
    .title = "Mamba 2",
    .hf_types = {"mamba2", "Mamba2ForCausalLM"},
    .configure = configure_mamba2,
    .hf_names = mamba2_names,
    .forward = one_mixer_forward,
    .hf_defaults = R"({"num_attention_heads": 1, "intermediate_size": 1,
    "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5, "mamba_n_heads": 128, "mamba_d_head": 64,
    "mamba_n_groups": 8, "mamba_d_state": 128})",
    .hf_aliases =
        R"({"num_heads": "mamba_n_heads", "head_dim": "mamba_d_head", "n_groups": "mamba_n_groups",
    "state_size": "mamba_d_state", "conv_kernel": "mamba_d_conv", "expand": "mamba_expand", "layer_norm_epsilon": "rms_norm_eps"})",
    .describe = describe_mamba2,
    .zero_sizes = true,
};

extern constinit const Architecture kNemotronH = {
    .name = "nemotron_h",
    .title = "Nemotron-H",
    .hf_types = {"nemotron_h", "NemotronHForCausalLM"},
    .configure = configure_nemotron_h,
    .hf_names = nemotron_h_names,
    .forward = one_mixer_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5, "hidden_act": "relu2", "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 8,
    "mamba_d_state": 128, "max_position_embeddings": 4096, "intermediate_size": 21504, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688})",
    .hf_aliases = kNemotronHAliases,
    .describe = describe_nemotron_h,
    .zero_sizes = true,
};

// The GGUF name of models with experts; the row above reads their config.json files.
extern constinit const Architecture kNemotronHMoe = {
    .name = "nemotron_h_moe",
    .title = "Nemotron-H with experts, Nemotron 3",
    .hf_types = {"nemotron_h", "NemotronHForCausalLM"},
    .configure = configure_nemotron_h,
    .hf_names = nemotron_h_names,
    .forward = one_mixer_forward,
    .hf_aliases = kNemotronHAliases,
    .describe = describe_nemotron_h,
    .zero_sizes = true,
};

}  // namespace penstock
