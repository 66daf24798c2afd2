// Llama in other layouts: InternLM 2 (queries, keys and values fused by KV head), XVERSE, Orion
// (layer norms), Baichuan (fused; the larger ones are biased by distance instead of rotated) and
// the first Qwen (fused, with biases).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

void apart_gguf_names(NameTable& names, const ModelConfig&) { names[tensor::kQkv] = ""; }

namespace {

void internlm2_names(NameTable& names, const ModelConfig&) {
  names.embedding = "tok_embeddings", names.lm_head = "output";
  names[tensor::kAttnNorm] = "attention_norm", names[tensor::kFfnNorm] = "ffn_norm";
  names[tensor::kQkv] = "attention.wqkv", names[tensor::kO] = "attention.wo";
  names[tensor::kGate] = "feed_forward.w1", names[tensor::kUp] = "feed_forward.w3";
  names[tensor::kDown] = "feed_forward.w2";
}

void describe_internlm2(ConfigWriter& writer, const ModelConfig&) {
  writer.set({"", "bias"}, writer.has_tensor("blk.0.attn_output.bias"));
}

// config.json names the layer norms' epsilon as if they were RMS norms.
void configure_orion(ConfigReader& reader, ModelConfig& config) {
  config.norm.layer_norm = true;
  config.norm.eps =
      reader.number({"attention.layer_norm_epsilon", "rms_norm_eps"}, 0.0f, 1.0f, 1e-5f);
}

void describe_orion(ConfigWriter& writer, const ModelConfig& config) {
  writer.erase({"attention.layer_norm_rms_epsilon", ""});
  writer.set({"attention.layer_norm_epsilon", "rms_norm_eps"}, config.norm.eps);
}

constexpr int kLayersOf13B = 40, kVocabOf2 = 125696;

// GGUF files have the output matrix with rows of length one.
// Configurations of models with ALiBi have no max_position_embeddings; in GGUF files only the
// number of layers tells.
void configure_baichuan(ConfigReader& reader, ModelConfig& config) {
  config.output.unit_rows =
      reader.has({"", "z_loss_weight"}) || (!reader.gguf() && config.vocab_size == kVocabOf2);
  const float usual = config.n_layers == kLayersOf13B ? 8.0f : 0.0f;
  const bool rotates = reader.has({"", "max_position_embeddings"});
  config.max_seq_len = reader.integer({"context_length", "model_max_length"}, 1, kMaxContextLength,
                                      config.max_seq_len);
  config.attention.alibi_max_bias =
      reader.gguf() ? reader.number({"attention.max_alibi_bias", ""}, 0.0f, 1e3f, usual)
                    : (rotates ? 0.0f : 8.0f);
  if (config.attention.alibi_max_bias > 0.0f) return drop_ropes(config);
  set_rope_pairs(reader, config);
}

void baichuan_names(NameTable& names, const ModelConfig&) {
  names[tensor::kQkv] = "self_attn.W_pack";
}

void describe_baichuan(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"", "model_max_length"}, config.max_seq_len);
  if (config.output.unit_rows) writer.set({"", "z_loss_weight"}, 0);
  if (config.attention.alibi_max_bias <= 0.0f) return;
  writer.set({"attention.max_alibi_bias", ""}, config.attention.alibi_max_bias);
  writer.erase({"", "max_position_embeddings"});
}

// Beyond seq_length, theta and the scale of queries change with the length; such lengths are not
// offered.
void configure_qwen(ConfigReader& reader, ModelConfig& config) {
  if (config.ffn_dim % 2 != 0)
    reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("{}: expected an even number, got {}",
                    reader.name({"feed_forward_length", "intermediate_size"}), config.ffn_dim));
  config.ffn_dim /= 2;
  const bool turns = reader.flag({"", "use_dynamic_ntk"}, false);
  const bool scales = reader.flag({"", "use_logn_attn"}, false);
  const int length = reader.integer({"", "seq_length"}, 1, kMaxContextLength, config.max_seq_len);
  if (turns || scales) config.max_seq_len = std::min(config.max_seq_len, length);
}

void qwen_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"transformer."};
  names.embedding = "wte", names.final_norm = "ln_f", names.layer = "h.{}.";
  names[tensor::kAttnNorm] = "ln_1", names[tensor::kFfnNorm] = "ln_2";
  names[tensor::kQkv] = "attn.c_attn", names[tensor::kO] = "attn.c_proj";
  names[tensor::kGate] = "mlp.w2", names[tensor::kUp] = "mlp.w1";
  names[tensor::kDown] = "mlp.c_proj";
}

void describe_qwen(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"feed_forward_length", "intermediate_size"}, 2 * config.ffn_dim);
  writer.set({"", "seq_length"}, config.max_seq_len);
  writer.set({"", "use_dynamic_ntk"}, false);
  writer.set({"", "use_logn_attn"}, false);
}

}  // namespace

extern constinit const Architecture kInternLm2 = {
    .name = "internlm2",
    .title = "InternLM 2, 2.5",
    .hf_types = {"internlm2", "InternLM2ForCausalLM"},
    .configure = set_rope_pairs,
    .hf_names = internlm2_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": false})",
    .describe = describe_internlm2,
    .gguf_names = apart_gguf_names,
    .hf_qkv_by_group = true,
    .gguf_pairs = true,
};

extern constinit const Architecture kXverse = {
    .name = "xverse",
    .title = "XVERSE",
    .hf_types = {"xverse", "XverseForCausalLM"},
    .configure = set_rope_pairs,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": false})",
    .gguf_pairs = true,
};

extern constinit const Architecture kOrion = {
    .name = "orion",
    .title = "Orion",
    .hf_types = {"orion", "OrionForCausalLM"},
    .configure = configure_orion,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": false, "rms_norm_eps": 1e-5})",
    .describe = describe_orion,
};

extern constinit const Architecture kBaichuan = {
    .name = "baichuan",
    .title = "Baichuan 1, 2",
    .hf_types = {"baichuan", "BaichuanForCausalLM", "BaiChuanForCausalLM"},
    .configure = configure_baichuan,
    .hf_names = baichuan_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": false})",
    .describe = describe_baichuan,
    .gguf_names = apart_gguf_names,
    .gguf_pairs = true,
};

extern constinit const Architecture kQwen = {
    .name = "qwen",
    .title = "Qwen (first)",
    .hf_types = {"qwen", "QWenLMHeadModel"},
    .configure = configure_qwen,
    .hf_names = qwen_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": false, "rms_norm_eps": 1e-6})",
    .hf_aliases = R"({"layer_norm_epsilon": "rms_norm_eps", "rotary_emb_base": "rope_theta",
    "kv_channels": "head_dim"})",
    .describe = describe_qwen,
};

}  // namespace penstock
