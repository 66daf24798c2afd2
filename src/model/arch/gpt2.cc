// Learned positions, layer norms with biases, one fused projection, a plain feed-forward: GPT-2, and GPT-BigCode (StarCoder), which
// mostly has one head of keys and values; OPT, whose table of positions begins with two rows that nobody has.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void read_common(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  config.learned_positions = true;
  config.gated_ffn = false;
  drop_ropes(config);
  if (reader.gguf()) config.activation = Activation::kGeluTanh;
  if (!reader.flag({"", "scale_attn_weights"}, true)) config.attention_scale = 1.0f;
}

}  // namespace

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
  names.attn_norm = "ln_1";
  names.qkv = "attn.c_attn";
  names.o = "attn.c_proj";
  names.ffn_norm = "ln_2";
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  names.transposed = true;
}

void configure_starcoder(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  if (!reader.gguf()) config.n_kv_heads = reader.flag({"", "multi_query"}, true) ? 1 : config.n_heads;
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
  config.learned_positions = true;
  config.gated_ffn = false;
  config.n_kv_heads = config.n_heads;
  if (reader.gguf()) config.activation = Activation::kRelu;
  config.skipped_positions = 2;
  const auto expect = [&](std::string_view key, bool usual) {
    if (reader.flag({"", key}, usual) != usual)
      reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected {}, got {}", key, usual, !usual));
  };
  expect("do_layer_norm_before", true);  // OPT 350M
  expect("_remove_final_layer_norm", false);
  expect("layer_norm_elementwise_affine", true);
  const int width = reader.integer({"", "word_embed_proj_dim"}, 1, 1 << 20, config.model_dim);
  if (width != config.model_dim) {
    reader.fail(ErrorCode::kUnsupported, fmt::format("word_embed_proj_dim: expected hidden_size ({}), got {}",
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
  names.prefixes = {"model.decoder.", "decoder.", ""};
  names.positions = "embed_positions", names.final_norm = "final_layer_norm";
  names.attn_norm = "self_attn_layer_norm", names.o = "self_attn.out_proj";
  names.ffn_norm = "final_layer_norm", names.up = "fc1", names.down = "fc2";
}

}  // namespace penstock
