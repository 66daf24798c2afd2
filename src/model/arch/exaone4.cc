// K-EXAONE: EXAONE 4's attention with a norm before it, and DeepSeek V3's experts. EXAONE 4: norms
// after each sub-layer and on every head; with windows, layers without one are not rotated.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

// Reads a repeated pattern of layer kinds: "LLLG".
void read_letters(const std::string& letters, int window, ModelConfig& config) {
  for (size_t i = 0; i < config.layers.size(); ++i)
    config.layers[i].window = letters[i % letters.size()] == 'L' ? window : 0;
}

void configure_exaone4(ConfigReader& reader, ModelConfig& config) {
  config.residual.norms = NormPlacement::kPost;
  config.attention.qk_norm = QkNorm::kHead;
  const Key window{"attention.sliding_window", "sliding_window"};
  // GGUF files of the 32B model, which has windows, may omit the key.
  const bool is_32b = reader.gguf() && config.n_layers == 64;
  if (!reader.has(window) && !is_32b) return;
  const nlohmann::json* pattern = reader.find({"", "sliding_window_pattern"});
  const bool by_letters = pattern != nullptr && pattern->is_string();
  if (by_letters && !reader.has({"", "layer_types"})) {
    const std::string letters = pattern->get<std::string>();
    if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)
      return reader.fail(ErrorCode::kCorruptFile,
                         "sliding_window_pattern: expected a number, or letters L and G");
    read_letters(letters, reader.integer(window, 0, 1 << 30), config);
  } else {
    const int period = by_letters ? 4 : reader.integer({"", "sliding_window_pattern"}, 0, 1024, 4);
    read_windows(reader, config, period, is_32b ? 4096 : 0);
  }
  for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? 0 : -1;
}

void configure_exaone_moe(ConfigReader& reader, ModelConfig& config) {
  configure_exaone4(reader, config);
  config.residual.norms = NormPlacement::kPre;
  read_experts(reader, config);
  const Key dense{"leading_dense_block_count", reader.has({"", "first_last_k_dense_replace"})
                                                   ? "first_last_k_dense_replace"
                                                   : "first_k_dense_replace"};
  const int n_dense = reader.integer(dense, 0, 1 << 20, 1);
  for (int i = 0; i < config.n_layers && i < n_dense; ++i)
    config.layers[static_cast<size_t>(i)].moe = false;
  read_mlp_layer_types(reader, config);
  read_sigmoid_routing(reader, config);
  read_shared_experts(reader, config);
}

void exaone_moe_names(NameTable& names, const ModelConfig&) {
  names[tensor::kSelectionBias] = "mlp.e_score_correction_bias";
  names.next_token = "mtp.";
}

void describe_exaone_moe(ConfigWriter& writer, const ModelConfig& config) {
  describe_sigmoid_routing(writer, config);
  describe_mlp_layer_types(writer, config);
  writer.set({"leading_dense_block_count", "first_k_dense_replace"}, leading_dense_layers(config));
  writer.set({"expert_shared_count", "num_shared_experts"},
             config.experts.shared_dim / config.experts.ffn_dim);
  writer.set({"expert_shared_feed_forward_length", ""}, config.experts.shared_dim);
}

void describe_exaone4(ConfigWriter& writer, const ModelConfig& config) {
  const bool windows =
      std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return layer.window > 0; });
  if (!windows) writer.set({"", "sliding_window"}, nullptr);
}

void configure_exaone(ConfigReader&, ModelConfig&) {}

void exaone_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"transformer.", ""};
  names.embedding = "wte", names.final_norm = "ln_f", names.layer = "h.{}.";
  names[tensor::kAttnNorm] = "ln_1", names[tensor::kFfnNorm] = "ln_2";
  names[tensor::kQ] = "attn.attention.q_proj", names[tensor::kK] = "attn.attention.k_proj",
  names[tensor::kV] = "attn.attention.v_proj";
  names[tensor::kO] = "attn.attention.out_proj";
  names[tensor::kGate] = "mlp.c_fc_0", names[tensor::kUp] = "mlp.c_fc_1",
  names[tensor::kDown] = "mlp.c_proj";
}

}  // namespace

extern constinit const Architecture kExaone = {
    .name = "exaone",
    .title = "EXAONE 3, 3.5",
    .hf_types = {"exaone", "ExaoneForCausalLM"},
    .configure = configure_exaone,
    .hf_names = exaone_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 500000.0})",
    .hf_aliases = R"({"num_layers": "num_hidden_layers",
    "layer_norm_epsilon": "rms_norm_eps", "activation_function": "hidden_act"})",
    .describe = describe_biases,
};

extern constinit const Architecture kExaone4 = {
    .name = "exaone4",
    .title = "EXAONE 4",
    .hf_types = {"exaone4", "Exaone4ForCausalLM"},
    .configure = configure_exaone4,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "sliding_window": 4096})",
    .describe = describe_exaone4,
};

extern constinit const Architecture kExaoneMoe = {
    .name = "exaone-moe",
    .title = "K-EXAONE",
    .hf_types = {"exaone_moe", "ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"},
    .configure = configure_exaone_moe,
    .hf_names = exaone_moe_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "sliding_window": 4096,
    "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 1024, "n_shared_experts": 1,
    "routed_scaling_factor": 2.5})",
    .hf_aliases = R"({"num_shared_experts": "n_shared_experts"})",
    .describe = describe_exaone_moe,
};

}  // namespace penstock
