// Learned positions, layer norms with biases, one fused projection, feed-forwards without gates:
// GPT-2, and GPT-BigCode (StarCoder), which mostly has one head of keys and values; OPT and BioGPT,
// whose table of positions begins with two unused rows; XGLM, whose positions are computed;
// GPT-Neo, with windows in every second layer and scores that are not scaled.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

void read_common(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  config.positions.learned = true;
  config.ffn.gated = false;
  drop_ropes(config);
  if (reader.gguf()) config.ffn.activation = Activation::kGeluTanh;
  if (!reader.flag({"", "scale_attn_weights"}, true)) config.attention.scale = 1.0f;
}

void configure_gpt2(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  if (!reader.flag({"", "scale_attn_by_inverse_layer_idx"}, false)) return;
  for (size_t i = 0; i < config.layers.size(); ++i)
    config.layers[i].score_factor = 1.0f / static_cast<float>(i + 1);
}

void gpt2_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"transformer.", ""};
  names.embedding = "wte";
  names.positions = "wpe";
  names.final_norm = "ln_f";
  names.layer = "h.{}.";
  names[tensor::kAttnNorm] = "ln_1";
  names[tensor::kQkv] = "attn.c_attn";
  names[tensor::kO] = "attn.c_proj";
  names[tensor::kFfnNorm] = "ln_2";
  names[tensor::kUp] = "mlp.c_fc";
  names[tensor::kDown] = "mlp.c_proj";
  names.transposed = true;
}

void configure_starcoder(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  if (!reader.gguf())
    config.n_kv_heads = reader.flag({"", "multi_query"}, true) ? 1 : config.n_heads;
}

void describe_starcoder(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"", "multi_query"}, config.n_kv_heads == 1);
}

void starcoder_names(NameTable& names, const ModelConfig& config) {
  gpt2_names(names, config);
  names.transposed = false;
}

void configure_opt(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  drop_ropes(config);
  config.positions.learned = true;
  config.ffn.gated = false;
  config.n_kv_heads = config.n_heads;
  if (reader.gguf()) config.ffn.activation = Activation::kRelu;
  config.positions.skipped = 2;
  reader.expect_flag("do_layer_norm_before", true);  // OPT 350M
  reader.expect_flag("_remove_final_layer_norm", false);
  reader.expect_flag("layer_norm_elementwise_affine", true);
  const int width = reader.integer({"", "word_embed_proj_dim"}, 1, 1 << 20, config.model_dim);
  if (width != config.model_dim) {
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("word_embed_proj_dim: expected hidden_size ({}), got {}",
                            config.model_dim, width));
  }
}

void describe_opt(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  writer.set({"", "hidden_size"}, config.model_dim);
  writer.set({"", "ffn_dim"}, config.ffn_dim);
  writer.set({"", "num_hidden_layers"}, config.n_layers);
  writer.set({"", "num_attention_heads"}, config.n_heads);
  writer.set({"", "max_position_embeddings"}, config.max_seq_len);
  writer.set({"", "enable_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

void opt_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"model.decoder.", "decoder.", "language_model.model.decoder.", ""};
  names.positions = "embed_positions", names.final_norm = "final_layer_norm";
  names[tensor::kAttnNorm] = "self_attn_layer_norm", names[tensor::kO] = "self_attn.out_proj";
  names[tensor::kFfnNorm] = "final_layer_norm", names[tensor::kUp] = "fc1",
  names[tensor::kDown] = "fc2";
}

void configure_biogpt(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  if (!reader.gguf()) config.norm.eps = 1e-5f;  // layer_norm_eps is ignored
  drop_ropes(config);
  config.positions.learned = true;
  config.ffn.gated = false;
  config.n_kv_heads = config.n_heads;
  if (reader.gguf()) config.ffn.activation = Activation::kGelu;
  config.positions.skipped = 2;
  const float root = std::sqrt(static_cast<float>(config.model_dim));
  const bool scaled = reader.gguf() ? reader.has({"embedding_scale", ""})
                                    : reader.flag({"", "scale_embedding"}, true);
  config.embedding.scale =
      scaled ? reader.number({"embedding_scale", ""}, -1e6f, 1e6f, root) : 1.0f;
}

constexpr int kMostComputed = 1 << 16;

constexpr int64_t kMostValues = int64_t{1} << 28;

// As BioGPT, with computed positions; the padding's positions are zeros.
void configure_xglm(ConfigReader& reader, ModelConfig& config) {
  configure_biogpt(reader, config);
  config.positions.computed = true;
  if (config.max_seq_len > kMostComputed)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("max_position_embeddings: expected at most {}, got {}", kMostComputed,
                            config.max_seq_len));
  if (int64_t{config.max_seq_len} * config.model_dim > kMostValues)
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("max_position_embeddings x d_model: expected at most {} values, got {} x {}",
                    kMostValues, config.max_seq_len, config.model_dim));
  const int padding = reader.integer({"", "pad_token_id"}, -1, 1 << 24, 1);
  if (padding >= config.positions.skipped)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("pad_token_id: expected 0 or 1, got {}", padding));
}

void xglm_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"model.", ""};
  names.final_norm = "layer_norm";
  names[tensor::kAttnNorm] = "self_attn_layer_norm", names[tensor::kO] = "self_attn.out_proj";
  names[tensor::kFfnNorm] = "final_layer_norm", names[tensor::kUp] = "fc1",
  names[tensor::kDown] = "fc2";
}

void describe_biogpt(ConfigWriter& writer, const ModelConfig& config) {
  describe_opt(writer, config);
  writer.set({"", "intermediate_size"}, config.ffn_dim);
  writer.set({"", "scale_embedding"}, config.embedding.scale != 1.0f);
  if (config.embedding.scale != 1.0f) writer.set({"embedding_scale", ""}, config.embedding.scale);
}

void biogpt_names(NameTable& names, const ModelConfig& config) {
  opt_names(names, config);
  names.prefixes = {"biogpt.", ""};
  names.final_norm = "layer_norm", names.lm_head = "output_projection";
}

// Reads [[kinds, number of repetitions], ...].
void read_attention_types(ConfigReader& reader, ModelConfig& config, int window) {
  const nlohmann::json* types = reader.find({"", "attention_types"});
  static const nlohmann::json kUsual = bounded_json(R"([[["global", "local"], 12]])");
  const nlohmann::json& list = types == nullptr ? kUsual : *types;
  size_t i = 0;
  const auto bad = [&] {
    reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format(
            "attention_types: expected [[[global or local, ...], times], ...] of {} layers, got {}",
            config.layers.size(),
            list.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 100)));
  };
  if (!list.is_array()) return bad();
  for (const nlohmann::json& item : list) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_array() ||
        !item[1].is_number_unsigned())
      return bad();
    for (size_t n = item[1].get<size_t>(); n > 0 && !item[0].empty(); --n) {
      for (const nlohmann::json& kind : item[0]) {
        if (i == config.layers.size() || (kind != "global" && kind != "local")) return bad();
        config.layers[i++].window = kind == "local" ? window : 0;
      }
    }
  }
  if (i != config.layers.size()) bad();
}

void configure_gpt_neo(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  config.n_kv_heads = config.n_heads;
  config.attention.scale = 1.0f;
  if (reader.gguf()) return read_windows(reader, config, 0);
  read_attention_types(reader, config, reader.integer({"", "window_size"}, 1, 1 << 30, 256));
}

void describe_gpt_neo(ConfigWriter& writer, const ModelConfig& config) {
  nlohmann::json types = nlohmann::json::array();
  int window = 0;
  for (const LayerConfig& layer : config.layers) {
    types.push_back({{layer.window > 0 ? "local" : "global"}, 1});
    window = std::max(window, layer.window);
  }
  describe_layer_norm(writer, config);
  writer.set({"", "attention_types"}, types);
  if (window > 0) writer.set({"", "window_size"}, window);
  writer.set({"", "hidden_size"}, config.model_dim);
  writer.set({"", "intermediate_size"}, config.ffn_dim);
  writer.set({"", "num_hidden_layers"}, config.n_layers);
  writer.set({"", "num_attention_heads"}, config.n_heads);
  writer.set({"", "max_position_embeddings"}, config.max_seq_len);
}

void gpt_neo_names(NameTable& names, const ModelConfig& config) {
  starcoder_names(names, config);
  names[tensor::kQ] = "attn.attention.q_proj", names[tensor::kK] = "attn.attention.k_proj",
  names[tensor::kV] = "attn.attention.v_proj";
  names[tensor::kQkv] = "", names[tensor::kO] = "attn.attention.out_proj";
}

constexpr std::string_view kGpt2Aliases =
    R"({"n_embd": "hidden_size", "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads", "n_positions": "max_position_embeddings", "n_inner": "intermediate_size"})";

}  // namespace

extern constinit const Architecture kGpt2 = {
    .name = "gpt2",
    .title = "GPT-2",
    .hf_types = {"gpt2", "GPT2LMHeadModel"},
    .configure = configure_gpt2,
    .hf_names = gpt2_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})",
    .hf_aliases = kGpt2Aliases,
    .wide_ffn = true,
};

extern constinit const Architecture kStarcoder = {
    .name = "starcoder",
    .title = "StarCoder, SantaCoder (GPT-BigCode)",
    .hf_types = {"gpt_bigcode", "GPTBigCodeForCausalLM"},
    .configure = configure_starcoder,
    .hf_names = starcoder_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-5})",
    .hf_aliases = kGpt2Aliases,
    .describe = describe_starcoder,
    .wide_ffn = true,
    .hf_qkv_by_group = true,
};

extern constinit const Architecture kGptNeo = {
    .name = "gptneo",
    .title = "GPT-Neo",
    .hf_types = {"gpt_neo", "GPTNeoForCausalLM"},
    .configure = configure_gpt_neo,
    .hf_names = gpt_neo_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "hidden_act": "gelu_new", "layer_norm_epsilon": 1e-5})",
    .hf_aliases = R"({"num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads", "activation_function": "hidden_act"})",
    .describe = describe_gpt_neo,
    .wide_ffn = true,
};

extern constinit const Architecture kBioGpt = {
    .name = "biogpt",
    .title = "BioGPT",
    .hf_types = {"biogpt", "BioGptForCausalLM"},
    .configure = configure_biogpt,
    .hf_names = biogpt_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "hidden_act": "gelu", "intermediate_size": 4096})",
    .describe = describe_biogpt,
};

extern constinit const Architecture kXglm = {
    .name = "xglm",
    .title = "XGLM",
    .hf_types = {"xglm", "XGLMForCausalLM"},
    .configure = configure_xglm,
    .hf_names = xglm_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "hidden_act": "gelu", "intermediate_size": 4096})",
    .hf_aliases = R"({"d_model": "hidden_size", "num_layers": "num_hidden_layers",
    "attention_heads": "num_attention_heads", "ffn_dim": "intermediate_size", "activation_function": "hidden_act"})",
    .describe = describe_biogpt,
};

extern constinit const Architecture kOpt = {
    .name = "opt",
    .title = "OPT",
    .hf_types = {"opt", "OPTForCausalLM"},
    .configure = configure_opt,
    .hf_names = opt_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "hidden_act": "relu", "intermediate_size": 3072})",
    .hf_aliases = R"({"ffn_dim": "intermediate_size", "activation_function": "hidden_act"})",
    .describe = describe_opt,
};

}  // namespace penstock
