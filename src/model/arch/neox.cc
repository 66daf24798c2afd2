// Decoders with layer norms and plain feed-forwards, mostly with parallel layers: GPT-NeoX
// (Pythia), Falcon, StableLM, StarCoder2, Phi-2, GPT-J and CodeGen, Persimmon.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_gpt_neox(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  config.n_kv_heads = config.n_heads;
  config.ffn.gated = false;
  if (reader.gguf()) config.ffn.activation = Activation::kGelu;
  config.residual.parallel = reader.flag({"use_parallel_residual", "use_parallel_residual"}, true);
  config.residual.parallel_norms = config.residual.parallel;
}

void describe_gpt_neox(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  writer.set({"use_parallel_residual", "use_parallel_residual"}, config.residual.parallel);
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_qkv.bias"));
}

void gpt_neox_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"gpt_neox.", ""};
  names.embedding = "embed_in", names.final_norm = "final_layer_norm", names.lm_head = "embed_out";
  names[tensor::kQkv] = "attention.query_key_value", names[tensor::kO] = "attention.dense";
  names[tensor::kUp] = "mlp.dense_h_to_4h", names[tensor::kDown] = "mlp.dense_4h_to_h";
}

void configure_falcon(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  config.ffn.gated = false;
  if (reader.gguf()) {
    config.ffn.activation = Activation::kGelu;
    config.residual.parallel = true;
    config.residual.parallel_norms = reader.has_tensor("blk.0.attn_norm_2.weight");
    return;
  }
  // Falcon-RW; transformers rounds slopes and biases to BF16
  if (reader.flag({"", "alibi"}, false)) {
    drop_ropes(config);
    config.attention.alibi_max_bias = 8.0f;
    config.attention.alibi_scaled = true;
  }
  const bool newer = reader.flag({"", "new_decoder_architecture"}, false);
  const bool one_head = reader.flag({"", "multi_query"}, true);
  const int stored = reader.integer({"", "num_kv_heads"}, 1, config.n_heads, config.n_heads);
  config.n_kv_heads = newer ? stored : one_head ? 1 : config.n_heads;
  config.residual.parallel = reader.flag({"", "parallel_attn"}, true);
  const int n_norms = reader.integer({"", "num_ln_in_parallel_attn"}, 1, 2, newer ? 2 : 1);
  config.residual.parallel_norms = config.residual.parallel && n_norms == 2;
  if (newer != config.residual.parallel_norms && (n_norms == 2 || !config.residual.parallel))
    reader.fail(ErrorCode::kUnsupported,
                "num_ln_in_parallel_attn: expected 2 only with new_decoder_architecture");
}

void describe_falcon(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  if (writer.gguf() && !config.residual.parallel) writer.set({"use_parallel_residual", ""}, false);
  const bool newer = config.residual.parallel_norms ||
                     (config.n_kv_heads > 1 && config.n_kv_heads < config.n_heads);
  writer.set({"", "new_decoder_architecture"}, newer);
  writer.set({"", "bias"}, writer.has_tensor("blk.0.attn_qkv.bias"));
  writer.set({"", "multi_query"}, config.n_kv_heads == 1);
  writer.set({"", "num_kv_heads"}, config.n_kv_heads);
  writer.set({"", "parallel_attn"}, config.residual.parallel);
  writer.set({"", "num_ln_in_parallel_attn"}, config.residual.parallel_norms ? 2 : 1);
}

void falcon_names(NameTable& names, const ModelConfig& config) {
  names.prefixes = {"transformer.", ""};
  names.embedding = "word_embeddings", names.final_norm = "ln_f", names.layer = "h.{}.";
  if (config.residual.parallel_norms)
    names[tensor::kAttnNorm] = "ln_attn", names[tensor::kFfnNorm] = "ln_mlp";
  names[tensor::kQkv] = "self_attention.query_key_value",
  names[tensor::kO] = "self_attention.dense";
  names[tensor::kUp] = "mlp.dense_h_to_4h", names[tensor::kDown] = "mlp.dense_4h_to_h";
}

void falcon_gguf_names(NameTable& names, const ModelConfig& config) {
  if (config.residual.parallel_norms)
    names[tensor::kAttnNorm] = "attn_norm_2", names[tensor::kFfnNorm] = "attn_norm";
}

void configure_stablelm(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  const bool norms = reader.gguf() ? reader.has_tensor("blk.0.attn_q_norm.weight")
                                   : reader.flag({"", "qk_layernorm"}, false);
  if (norms) config.attention.qk_norm = QkNorm::kHeads;
  // GGUF files have the key too; in older ones only the missing second norm shows it.
  const bool parallel = reader.flag({"use_parallel_residual", "use_parallel_residual"}, false);
  config.residual.parallel = reader.gguf() ? !reader.has_tensor("blk.0.ffn_norm.weight") : parallel;
}

void describe_stablelm(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  writer.set({"use_parallel_residual", "use_parallel_residual"}, config.residual.parallel);
  writer.set({"", "qk_layernorm"}, config.attention.qk_norm != QkNorm::kNone);
  writer.set({"", "use_qkv_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

void stablelm_names(NameTable& names, const ModelConfig&) {
  names[tensor::kQNorm] = "self_attn.q_layernorm.norms.{}",
  names[tensor::kKNorm] = "self_attn.k_layernorm.norms.{}";
}

void configure_starcoder2(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  config.ffn.gated = false;
  if (reader.gguf()) config.ffn.activation = Activation::kGeluTanh;
  read_windows(reader, config, 0);
}

void describe_starcoder2(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  writer.set({"", "use_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

void starcoder2_names(NameTable& names, const ModelConfig&) {
  names[tensor::kUp] = "mlp.c_fc", names[tensor::kDown] = "mlp.c_proj";
}

void configure_phi2(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  config.ffn.gated = false;
  config.residual.parallel = true;
  if (reader.gguf()) config.ffn.activation = Activation::kGeluTanh;
  if (reader.flag({"", "qk_layernorm"}, false)) config.attention.qk_norm = QkNorm::kHead;
}

void describe_phi2(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  writer.set({"", "qk_layernorm"}, config.attention.qk_norm != QkNorm::kNone);
}

void phi2_names(NameTable& names, const ModelConfig&) {
  names.final_norm = "final_layernorm", names[tensor::kO] = "self_attn.dense";
  names[tensor::kQNorm] = "self_attn.q_layernorm", names[tensor::kKNorm] = "self_attn.k_layernorm";
  names[tensor::kUp] = "mlp.fc1", names[tensor::kDown] = "mlp.fc2";
}

void configure_gptj(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  config.n_kv_heads = config.n_heads;
  config.ffn.gated = false;
  config.residual.parallel = true;
  config.positions.rope_interleaved = true;
  if (reader.gguf()) config.ffn.activation = Activation::kGeluTanh;
  if (!reader.gguf())
    config.ropes[0].rotary_dim =
        reader.integer({"", "rotary_dim"}, 2, config.head_dim, config.head_dim);
}

void describe_gptj(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  writer.set({"", "rotary_dim"}, config.ropes[0].rotary_dim);
}

void gptj_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"transformer.", ""};
  names.embedding = "wte", names.final_norm = "ln_f", names.layer = "h.{}.",
  names[tensor::kAttnNorm] = "ln_1";
  names[tensor::kQ] = "attn.q_proj", names[tensor::kK] = "attn.k_proj",
  names[tensor::kV] = "attn.v_proj", names[tensor::kO] = "attn.out_proj";
  names[tensor::kUp] = "mlp.fc_in", names[tensor::kDown] = "mlp.fc_out";
}

// GPT-J with a fused projection, stored in four shards.
void configure_codegen(ConfigReader& reader, ModelConfig& config) {
  configure_gptj(reader, config);
  config.attention.qkv_shards = 4;
  if (config.n_heads * config.head_dim % config.attention.qkv_shards != 0) {
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("n_embd: expected a multiple of {}, got {}",
                            config.attention.qkv_shards, config.n_heads * config.head_dim));
    config.attention.qkv_shards = 0;
  }
}

void codegen_names(NameTable& names, const ModelConfig& config) {
  gptj_names(names, config);
  names[tensor::kQkv] = "attn.qkv_proj";
}

void configure_persimmon(ConfigReader& reader, ModelConfig& config) {
  read_layer_norm(reader, config);
  config.n_kv_heads = config.n_heads;
  config.ffn.gated = false;
  if (reader.gguf()) config.ffn.activation = Activation::kRelu2;
  const bool norms = reader.gguf() ? reader.has_tensor("blk.0.attn_q_norm.weight")
                                   : reader.flag({"", "qk_layernorm"}, true);
  if (norms) config.attention.qk_norm = QkNorm::kHead;
}

void describe_persimmon(ConfigWriter& writer, const ModelConfig& config) {
  describe_phi2(writer, config);
}

void persimmon_names(NameTable& names, const ModelConfig&) {
  names.final_norm = "final_layernorm";
  names[tensor::kQkv] = "self_attn.query_key_value", names[tensor::kO] = "self_attn.dense";
  names[tensor::kQNorm] = "self_attn.q_layernorm", names[tensor::kKNorm] = "self_attn.k_layernorm";
  names[tensor::kUp] = "mlp.dense_h_to_4h", names[tensor::kDown] = "mlp.dense_4h_to_h";
}

constexpr std::string_view kGptJDefaults = R"({"hidden_act": "gelu_new", "rotary_dim": 64})";

constexpr std::string_view kGptJAliases =
    R"({"n_embd": "hidden_size", "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads", "n_positions": "max_position_embeddings", "n_inner": "intermediate_size",
    "activation_function": "hidden_act"})";

constexpr MeaningfulKey kNeoXKeys[] = {{{"use_parallel_residual", "use_parallel_residual"}, 0},
                                       {{"", "qk_layernorm"}, 0}};

}  // namespace

extern constinit const Architecture kGptNeoX = {
    .name = "gptneox",
    .title = "GPT-NeoX, Pythia",
    .hf_types = {"gpt_neox", "GPTNeoXForCausalLM"},
    .configure = configure_gpt_neox,
    .hf_names = gpt_neox_names,
    .forward = parallel_forward,
    .hf_defaults = R"({"hidden_act": "gelu", "partial_rotary_factor": 0.25})",
    .hf_aliases = R"({"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"})",
    .describe = describe_gpt_neox,
    .partial_rope = true,
    .hf_qkv_by_group = true,
    .own_keys = kNeoXKeys,
};

extern constinit const Architecture kFalcon = {
    .name = "falcon",
    .title = "Falcon",
    .hf_types = {"falcon", "FalconForCausalLM", "RefinedWeb", "RefinedWebModel"},
    .configure = configure_falcon,
    .hf_names = falcon_names,
    .forward = parallel_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "activation_function": "gelu"})",
    .hf_aliases = R"({"n_embed": "hidden_size", "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads", "ffn_hidden_size": "intermediate_size", "activation": "activation_function"})",
    .describe = describe_falcon,
    .gguf_names = falcon_gguf_names,
    .wide_ffn = true,
    .hf_qkv_by_group = true,
};

extern constinit const Architecture kStableLm = {
    .name = "stablelm",
    .title = "StableLM",
    .hf_types = {"stablelm", "StableLmForCausalLM"},
    .configure = configure_stablelm,
    .hf_names = stablelm_names,
    .forward = parallel_forward,
    .hf_defaults = R"({"partial_rotary_factor": 0.25})",
    .describe = describe_stablelm,
    .partial_rope = true,
};

extern constinit const Architecture kStarcoder2 = {
    .name = "starcoder2",
    .title = "StarCoder2",
    .hf_types = {"starcoder2", "Starcoder2ForCausalLM"},
    .configure = configure_starcoder2,
    .hf_names = starcoder2_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "hidden_act": "gelu_pytorch_tanh", "num_key_value_heads": 2})",
    .hf_aliases = R"({"norm_epsilon": "layer_norm_eps"})",
    .describe = describe_starcoder2,
};

extern constinit const Architecture kPhi2 = {
    .name = "phi2",
    .title = "Phi-2",
    .hf_types = {"phi", "PhiForCausalLM"},
    .configure = configure_phi2,
    .hf_names = phi2_names,
    .forward = parallel_forward,
    .hf_defaults = R"({"hidden_act": "gelu_new", "partial_rotary_factor": 0.5})",
    .describe = describe_phi2,
    .partial_rope = true,
};

extern constinit const Architecture kGptJ = {
    .name = "gptj",
    .title = "GPT-J",
    .hf_types = {"gptj", "GPTJForCausalLM"},
    .configure = configure_gptj,
    .hf_names = gptj_names,
    .forward = parallel_forward,
    .hf_defaults = kGptJDefaults,
    .hf_aliases = kGptJAliases,
    .describe = describe_gptj,
    .wide_ffn = true,
};

extern constinit const Architecture kCodeGen = {
    .name = "codegen",
    .title = "CodeGen",
    .hf_types = {"codegen", "CodeGenForCausalLM"},
    .configure = configure_codegen,
    .hf_names = codegen_names,
    .forward = parallel_forward,
    .hf_defaults = kGptJDefaults,
    .hf_aliases = kGptJAliases,
    .describe = describe_gptj,
    .wide_ffn = true,
    .hf_qkv_by_group = true,
};

extern constinit const Architecture kPersimmon = {
    .name = "persimmon",
    .title = "Persimmon",
    .hf_types = {"persimmon", "PersimmonForCausalLM"},
    .configure = configure_persimmon,
    .hf_names = persimmon_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"hidden_act": "relu2", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5})",
    .describe = describe_persimmon,
    .partial_rope = true,
    .hf_qkv_by_group = true,
};

}  // namespace penstock
