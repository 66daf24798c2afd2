// Layers of one part each: Mamba 2, which only scans; Nemotron-H, whose layers scan, attend (without rotation) or feed
// forward.
#include <nlohmann/json.hpp>

#include "model/decoder.h"

namespace penstock {

void configure_mamba2(ConfigReader& reader, ModelConfig& config) {
  config.one_mixer = true;
  config.ffn_dim = 0;
  for (LayerConfig& layer : config.layers) {
    layer = {};
    layer.attention = false;
    layer.recurrence = Recurrence::kStateSpace;
    layer.rope = -1;
  }
  const std::string activation = reader.text({"", "hidden_act"}, "silu");
  if (activation != "silu")
    reader.fail(ErrorCode::kUnsupported, fmt::format("hidden_act: expected silu, got '{}'", activation));
  read_state_space(reader, config);
}

void configure_nemotron_h(ConfigReader& reader, ModelConfig& config) {
  config.one_mixer = true;
  config.gated_ffn = false;
  // transformers ties nothing here, whatever config.json says.
  if (!reader.gguf()) config.tied_embeddings = false;
  if (reader.gguf()) config.activation = Activation::kRelu2;
  const std::string activation = reader.text({"", "mamba_hidden_act"}, "silu");
  if (activation != "silu")
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("mamba_hidden_act: expected silu, got '{}'", activation));
  reader.find({"", "n_routed_experts"});  // of layers that are refused by their kind
  read_hybrid_layers(reader, config);
  for (LayerConfig& layer : config.layers) layer.rope = -1, layer.ffn_dim = 0;
  read_state_space(reader, config);
}

void describe_mamba2(ConfigWriter& writer, const ModelConfig& config) {
  describe_state_space(writer, config);
  writer.set({"attention.head_count", ""}, 0);
  writer.erase({"attention.head_count_kv", ""});
  writer.set({"feed_forward_length", ""}, 0);
  for (const std::string_view key :
       {"head_dim", "num_attention_heads", "num_key_value_heads", "intermediate_size"})
    writer.erase({"", key});
}

void describe_nemotron_h(ConfigWriter& writer, const ModelConfig& config) {
  describe_state_space(writer, config);
  nlohmann::json widths = nlohmann::json::array(), kinds = nlohmann::json::array();
  for (int i = 0; i < config.n_layers; ++i) {
    const bool feeds = config.has_feed_forward(i);
    widths.push_back(static_cast<uint64_t>(feeds ? config.ffn_dim : 0));
    const bool attends = config.layers[static_cast<size_t>(i)].attention;
    kinds.push_back(feeds ? "mlp" : attends ? "attention" : "mamba");
  }
  writer.set({"feed_forward_length", ""}, widths);
  writer.set({"", "layer_types"}, kinds);
  writer.set({"", "mlp_hidden_act"}, "relu2");
}

void mamba2_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"backbone.", "model.", ""};
  names.embedding = "embeddings", names.final_norm = "norm_f", names.attn_norm = "norm";
  names.q = "mixer.q_proj", names.k = "mixer.k_proj", names.v = "mixer.v_proj", names.o = "mixer.o_proj";
  names.up = "mixer.up_proj", names.down = "mixer.down_proj";
  names.ssm_in = "mixer.in_proj", names.ssm_conv = "mixer.conv1d", names.ssm_rate = "mixer.A_log";
  names.ssm_skip = "mixer.D", names.ssm_bias = "mixer.dt_bias", names.ssm_norm = "mixer.norm";
  names.ssm_out = "mixer.out_proj";
}

StepOutputs one_mixer_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                              KvCache& cache, Ops& ops, const ForwardOptions& options) {
  const int n_layers = options.n_layers > 0 ? options.n_layers : config.n_layers;
  const Tensor x = options.stream != nullptr
                       ? *options.stream
                       : ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  const Tensor normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  if (options.stream == nullptr) embed_input(config, weights, x, ops);
  for (int i = options.first_layer; i < n_layers; ++i) {
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

}  // namespace penstock
