// Decoders whose attention is biased by distance (ALiBi): MPT, BLOOM.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_mpt(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  drop_ropes(config);
  config.ffn.gated = false;
  config.norm.biases = false;
  config.ffn.activation = Activation::kGelu;
  config.n_kv_heads = config.n_heads;
  config.attention.alibi_max_bias =
      reader.number({"attention.max_alibi_bias", ""}, 0.0f, 1e3f, 8.0f);
  if (config.attention.alibi_max_bias == 0.0f)
    reader.fail(ErrorCode::kUnsupported, "attention.max_alibi_bias: MPT is read with ALiBi only");
  read_clip_qkv(reader, config);
  const nlohmann::json* attention = reader.find({"", "attn_config"});
  if (attention == nullptr) return;
  ConfigReader inner(*attention, Naming::kHuggingFace, "", reader.where() + ": attn_config");
  config.attention.alibi_max_bias = inner.number({"", "alibi_bias_max"}, 1e-3f, 1e3f, 8.0f);
  config.attention.scale = inner.number({"", "softmax_scale"}, -1e6f, 1e6f, 0.0f);
  if (!inner.flag({"", "alibi"}, true))
    inner.fail(ErrorCode::kUnsupported, "alibi: expected true, got false");
  for (const std::string_view key : {"qk_ln", "prefix_lm", "attn_uses_sequence_id"}) {
    if (inner.flag({"", key}, false))
      inner.fail(ErrorCode::kUnsupported, fmt::format("{} is not supported", key));
  }
  read_clip_qkv(inner, config);
  if (inner.text({"", "attn_type"}, "multihead_attention") != "multihead_attention")
    inner.fail(ErrorCode::kUnsupported, "attn_type: expected multihead_attention");
  reader.merge(inner);
}

void describe_mpt(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  writer.set({"attention.max_alibi_bias", ""}, config.attention.alibi_max_bias);
  nlohmann::json attention = {{"alibi", true}, {"alibi_bias_max", config.attention.alibi_max_bias}};
  if (config.attention.clip > 0) attention["clip_qkv"] = config.attention.clip;
  if (config.attention.clip > 0) writer.set({"attention.clamp_kqv", ""}, config.attention.clip);
  writer.set({"", "attn_config"}, attention);
}

void mpt_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"transformer.", ""};
  names.embedding = "wte", names.final_norm = "norm_f", names.layer = "blocks.{}.";
  names[tensor::kAttnNorm] = "norm_1", names[tensor::kQkv] = "attn.Wqkv",
  names[tensor::kO] = "attn.out_proj";
  names[tensor::kFfnNorm] = "norm_2", names[tensor::kUp] = "ffn.up_proj",
  names[tensor::kDown] = "ffn.down_proj";
}

void configure_bloom(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  drop_ropes(config);
  config.ffn.gated = false;
  config.embedding.norm = true;
  config.ffn.activation = Activation::kGeluTanh;
  config.n_kv_heads = config.n_heads;
  config.attention.alibi_max_bias = 8.0f;
  config.residual.adds_to_norm =
      reader.flag({"", "apply_residual_connection_post_layernorm"}, false);
}

void describe_bloom(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  writer.erase({"", "hidden_act"});
}

void bloom_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"transformer.", ""};
  names.embedding = "word_embeddings", names.embedding_norm = "word_embeddings_layernorm";
  names.final_norm = "ln_f", names.layer = "h.{}.";
  names[tensor::kQkv] = "self_attention.query_key_value",
  names[tensor::kO] = "self_attention.dense";
  names[tensor::kUp] = "mlp.dense_h_to_4h", names[tensor::kDown] = "mlp.dense_4h_to_h";
}

constexpr std::string_view kTiedDefaults = R"({"tie_word_embeddings": true})";

constexpr MeaningfulKey kAlibiKeys[] = {{{"", "alibi"}, 0},
                                        {{"attention.max_alibi_bias", ""}, 0},
                                        {{"attention.clamp_kqv", "clip_qkv"}, 0}};

}  // namespace

extern constinit const Architecture kMpt = {
    .name = "mpt",
    .title = "MPT",
    .hf_types = {"mpt", "MptForCausalLM", "MPTForCausalLM"},
    .configure = configure_mpt,
    .hf_names = mpt_names,
    .forward = decoder_forward,
    .hf_defaults = kTiedDefaults,
    .hf_aliases = R"({"d_model": "hidden_size", "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads", "max_seq_len": "max_position_embeddings"})",
    .describe = describe_mpt,
    .wide_ffn = true,
    .own_keys = kAlibiKeys,
};

extern constinit const Architecture kBloom = {
    .name = "bloom",
    .title = "BLOOM",
    .hf_types = {"bloom", "BloomForCausalLM"},
    .configure = configure_bloom,
    .hf_names = bloom_names,
    .forward = decoder_forward,
    .hf_defaults = kTiedDefaults,
    .hf_aliases = R"({"n_embed": "hidden_size", "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads", "seq_length": "max_position_embeddings"})",
    .describe = describe_bloom,
    .wide_ffn = true,
    .hf_qkv_by_group = true,
};

}  // namespace penstock
