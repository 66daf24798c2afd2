// Llama 1 to 3.2 and architectures that differ little from it: Mistral, Ministral, Mixtral,
// Ministral 3, Granite, HyperCLOVA X, SmolLM3, Arcee, Seed-OSS, ERNIE 4.5, Helium, CWM.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

void set_rope_pairs(ConfigReader& reader, ModelConfig& config) {
  config.positions.rope_by_format = true;
  config.positions.rope_interleaved = reader.gguf();
}

namespace {

void configure_llama(ConfigReader& reader, ModelConfig& config) {
  set_rope_pairs(reader, config);
  if (reader.gguf()) {
    // Mistral
    read_windows(reader, config, 0);
    // Mixtral
    if (reader.integer({"expert_count", ""}, 0, 4096, 0) > 0) read_experts(reader, config);
  }
}

void configure_mistral(ConfigReader& reader, ModelConfig& config) {
  configure_llama(reader, config);
  read_windows(reader, config, 0);
}

void configure_mixtral(ConfigReader& reader, ModelConfig& config) {
  configure_mistral(reader, config);
  read_experts(reader, config);
}

}  // namespace

void mixtral_names(NameTable& names, const ModelConfig&) {
  names[tensor::kRouter] = "block_sparse_moe.gate";
  names[tensor::kExpertGate] = "block_sparse_moe.experts.{}.w1";
  names[tensor::kExpertUp] = "block_sparse_moe.experts.{}.w3";
  names[tensor::kExpertDown] = "block_sparse_moe.experts.{}.w2";
}

void configure_granite(ConfigReader& reader, ModelConfig& config) {
  set_rope_pairs(reader, config);
  config.embedding.scale =
      reader.number({"embedding_scale", "embedding_multiplier"}, -1e6f, 1e6f, 1.0f);
  config.residual.scale =
      reader.number({"residual_scale", "residual_multiplier"}, -1e6f, 1e6f, 1.0f);
  config.attention.scale =
      reader.number({"attention.scale", "attention_multiplier"}, -1e6f, 1e6f, 1.0f);
  config.output.scale = 1.0f / reader.number({"logit_scale", "logits_scaling"}, 1e-6f, 1e6f, 1.0f);
  reader.find({"ssm.state_size", ""});  // files of Granite 4 without scans have it
}

void describe_granite(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"embedding_scale", "embedding_multiplier"}, config.embedding.scale);
  writer.set({"residual_scale", "residual_multiplier"}, config.residual.scale);
  writer.set({"attention.scale", "attention_multiplier"}, config.attention.scale);
  writer.set({"logit_scale", "logits_scaling"}, 1.0f / config.output.scale);
}

// llama.cpp's names: gate and up are never fused, although dense hybrids publish them so.
void granite_gguf_names(NameTable& names, const ModelConfig&) { names[tensor::kGateUp] = ""; }

void read_query_scale(ConfigReader& reader, ModelConfig& config) {
  config.attention.query_scale.beta =
      reader.number({"attention.temperature_scale", ""}, 0.0f, 1e3f, 0.0f);
  const nlohmann::json* rope = reader.find({"", "rope_parameters"});
  if (rope == nullptr) rope = reader.find({"", "rope_scaling"});
  if (rope != nullptr) {
    ConfigReader inner(*rope, Naming::kHuggingFace, "", reader.where() + ": rope_parameters");
    config.attention.query_scale.beta =
        inner.number({"", "llama_4_scaling_beta"}, 0.0f, 1e3f, 0.0f);
    reader.merge(inner);
  }
  config.attention.query_scale.period = static_cast<float>(config.ropes[0].original_max_seq_len);
  for (LayerConfig& layer : config.layers)
    layer.query_scale = config.attention.query_scale.beta != 0.0f;
}

void describe_query_scale(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"attention.temperature_scale", ""}, config.attention.query_scale.beta);
  writer.set_inside({"", "rope_parameters"}, "llama_4_scaling_beta",
                    config.attention.query_scale.beta);
}

namespace {

void configure_ministral3(ConfigReader& reader, ModelConfig& config) {
  set_rope_pairs(reader, config);
  read_windows(reader, config, 0);
  read_query_scale(reader, config);
}

// Some layers are not rotated; only these may have a window.
void configure_smollm3(ConfigReader& reader, ModelConfig& config) {
  set_rope_pairs(reader, config);
  const int interval = reader.integer({"", "no_rope_layer_interval"}, 1, 1024, 4);
  const std::vector<float> rotated = reader.numbers({"", "no_rope_layers"}, 1024);
  if (!rotated.empty() && rotated.size() < config.layers.size()) {
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("no_rope_layers: expected {} numbers, got {}",
                                   config.layers.size(), rotated.size()));
  }
  const int window = reader.integer({"", "sliding_window"}, 0, 1 << 30, 0);
  const bool windows = reader.flag({"", "use_sliding_window"}, false) && window > 0;
  if (reader.has({"", "layer_types"})) read_windows(reader, config, 0);
  for (int i = 0; i < config.n_layers; ++i) {
    const auto place = static_cast<size_t>(i);
    const bool rotates = rotated.empty() ? (i + 1) % interval != 0 : rotated[place] != 0.0f;
    config.layers[place].rope = rotates ? 0 : -1;
    if (!reader.has({"", "layer_types"}))
      config.layers[place].window = windows && !rotates ? window : 0;
  }
}

void describe_smollm3(ConfigWriter& writer, const ModelConfig& config) {
  std::vector<int> rotated;
  bool windows = false;
  for (const LayerConfig& layer : config.layers) {
    rotated.push_back(layer.rope >= 0 ? 1 : 0);
    windows |= layer.window > 0;
  }
  writer.set({"", "no_rope_layers"}, rotated);
  writer.set({"", "use_sliding_window"}, windows);
  describe_biases(writer, config);
}

void configure_arcee(ConfigReader& reader, ModelConfig& config) {
  set_rope_pairs(reader, config);
  config.ffn.gated = false;
  if (reader.gguf()) config.ffn.activation = Activation::kRelu2;
}

void configure_seed_oss(ConfigReader&, ModelConfig&) {}

}  // namespace

void describe_biases(ConfigWriter& writer, const ModelConfig&) {
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
  writer.set({"", "attention_out_bias"}, writer.has_tensor("blk.0.attn_output.bias"));
  writer.set({"", "mlp_bias"}, writer.has_tensor("blk.0.ffn_up.bias"));
}

namespace {

void seed_oss_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kFfnNorm] = "post_attention_norm";
}

void configure_ernie4_5(ConfigReader&, ModelConfig& config) {
  config.positions.rope_interleaved = true;
}

void configure_helium(ConfigReader&, ModelConfig& config) {
  config.positions.rope_interleaved = true;
}

// As Mistral, with windows by layer.
void configure_ministral(ConfigReader& reader, ModelConfig& config) {
  read_windows(reader, config, 0);
}

// By default the first layer and then every fourth one have full attention.
void configure_cwm(ConfigReader& reader, ModelConfig& config) {
  read_windows(reader, config, 0, 8192);
  if (reader.has({"attention.sliding_window_pattern", "layer_types"})) return;
  for (size_t i = 0; i < config.layers.size(); i += 4) config.layers[i].window = 0;
}

// Granite with multiplied instead of divided logits, and by default with norms after each
// sub-layer.
void configure_hyperclovax(ConfigReader& reader, ModelConfig& config) {
  configure_granite(reader, config);
  config.output.scale = reader.number({"logit_scale", "logits_scaling"}, -1e6f, 1e6f, 1.0f);
  if (!reader.has({"attention.scale", "attention_multiplier"})) config.attention.scale = 0.0f;
  const bool norms = reader.gguf() ? reader.has_tensor("blk.0.post_attention_norm.weight")
                                   : reader.flag({"", "use_post_norm"}, true);
  if (norms) config.residual.norms = NormPlacement::kBoth;
}

void describe_hyperclovax(ConfigWriter& writer, const ModelConfig& config) {
  describe_granite(writer, config);
  describe_biases(writer, config);
  writer.set({"logit_scale", "logits_scaling"}, config.output.scale);
  writer.set({"", "use_post_norm"}, config.residual.norms == NormPlacement::kBoth);
}

void hyperclovax_names(NameTable& names, const ModelConfig&) {
  names[tensor::kFfnNorm] = "post_attention_layernorm";
  names[tensor::kAttnPostNorm] = "post_norm1", names[tensor::kFfnPostNorm] = "post_norm2";
}

}  // namespace

void describe_ernie4_5(ConfigWriter& writer, const ModelConfig&) {
  writer.set({"", "use_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

extern constinit const Architecture kLlama = {
    .name = "llama",
    .title = "Llama 1 to 3.3",
    .hf_types = {"llama", "LlamaForCausalLM"},
    .configure = configure_llama,
    .forward = decoder_forward,
    .gguf_pairs = true,
};

extern constinit const Architecture kMistral = {
    .name = "mistral",
    .title = "Mistral",
    .hf_types = {"mistral", "MistralForCausalLM"},
    .gguf_name = "llama",
    .configure = configure_mistral,
    .forward = decoder_forward,
    .hf_defaults = R"({"num_key_value_heads": 8, "sliding_window": 4096})",
    .gguf_pairs = true,
};

namespace {

constexpr MeaningfulKey kMinistral3Keys[] = {{{"attention.temperature_scale", ""}, 0}};

}  // namespace

extern constinit const Architecture kMinistral3 = {
    .name = "mistral3",
    .title = "Ministral 3",
    .hf_types = {"ministral3", "Ministral3ForCausalLM"},
    .configure = configure_ministral3,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 8, "rms_norm_eps": 1e-5})",
    .describe = describe_query_scale,
    .gguf_pairs = true,
    .own_keys = kMinistral3Keys,
};

extern constinit const Architecture kInternLm3 = {
    .name = "internlm3",
    .title = "InternLM 3",
    .hf_types = {"internlm3", "InternLM3ForCausalLM"},
    .gguf_name = "llama",
    .configure = configure_llama,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1e-5})",
    .hf_aliases = R"({"qkv_bias": "attention_bias", "bias": "mlp_bias"})",
    .gguf_pairs = true,
};

extern constinit const Architecture kIQuestCoder = {
    .name = "iquestcoder",
    .title = "IQuest-Coder",
    .hf_types = {"iquestcoder", "IQuestCoderForCausalLM"},
    .gguf_name = "llama",
    .configure = configure_llama,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 8, "rms_norm_eps": 1e-5})",
    .gguf_pairs = true,
};

namespace {

constexpr MeaningfulKey kGraniteKeys[] = {{{"", "logits_scaling"}, 1},
                                          {{"embedding_scale", "embedding_multiplier"}, 1},
                                          {{"residual_scale", "residual_multiplier"}, 1},
                                          {{"attention.scale", "attention_multiplier"}, 0}};

}  // namespace

extern constinit const Architecture kGranite = {
    .name = "granite",
    .title = "Granite",
    .hf_types = {"granite", "GraniteForCausalLM"},
    .configure = configure_granite,
    .forward = decoder_forward,
    .describe = describe_granite,
    .gguf_names = granite_gguf_names,
    .gguf_pairs = true,
    .own_keys = kGraniteKeys,
};

extern constinit const Architecture kHyperClovaX = {
    .name = "hyperclovax",
    .title = "HyperCLOVA X SEED",
    .hf_types = {"hyperclovax", "HyperCLOVAXForCausalLM"},
    .configure = configure_hyperclovax,
    .hf_names = hyperclovax_names,
    .forward = decoder_forward,
    .describe = describe_hyperclovax,
    .gguf_pairs = true,
};

extern constinit const Architecture kMinistral = {
    .name = "ministral",
    .title = "Ministral",
    .hf_types = {"ministral", "MinistralForCausalLM"},
    .configure = configure_ministral,
    .forward = decoder_forward,
    .hf_defaults = R"({"num_key_value_heads": 8, "sliding_window": 4096})",
};

extern constinit const Architecture kCwm = {
    .name = "cwm",
    .title = "CWM",
    .hf_types = {"cwm", "CwmForCausalLM"},
    .configure = configure_cwm,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
    "rope_theta": 1e6, "sliding_window": 8192})",
};

extern constinit const Architecture kHelium = {
    .name = "helium",
    .title = "Helium",
    .hf_types = {"helium", "HeliumForCausalLM"},
    .configure = configure_helium,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "rms_norm_eps": 1e-8, "rope_theta": 1e5})",
    .describe = describe_biases,
};

extern constinit const Architecture kSmolLm3 = {
    .name = "smollm3",
    .title = "SmolLM3",
    .hf_types = {"smollm3", "SmolLM3ForCausalLM"},
    .configure = configure_smollm3,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "rope_theta": 2e6, "num_key_value_heads": 4})",
    .describe = describe_smollm3,
    .gguf_pairs = true,
};

extern constinit const Architecture kArcee = {
    .name = "arcee",
    .title = "Arcee",
    .hf_types = {"arcee", "ArceeForCausalLM"},
    .configure = configure_arcee,
    .forward = decoder_forward,
    .hf_defaults = R"({"hidden_act": "relu2", "rms_norm_eps": 1e-5})",
    .describe = describe_biases,
    .gguf_pairs = true,
};

extern constinit const Architecture kSeedOss = {
    .name = "seed_oss",
    .title = "Seed-OSS",
    .hf_types = {"seed_oss", "SeedOssForCausalLM"},
    .configure = configure_seed_oss,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 8})",
    .describe = describe_biases,
    .gguf_names = seed_oss_gguf_names,
};

extern constinit const Architecture kErnie45 = {
    .name = "ernie4_5",
    .title = "ERNIE 4.5",
    .hf_types = {"ernie4_5", "Ernie4_5ForCausalLM"},
    .configure = configure_ernie4_5,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "head_dim": 128,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 5e5})",
    .describe = describe_ernie4_5,
};

extern constinit const Architecture kMixtral = {
    .name = "mixtral",
    .title = "Mixtral",
    .hf_types = {"mixtral", "MixtralForCausalLM"},
    .gguf_name = "llama",
    .configure = configure_mixtral,
    .hf_names = mixtral_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_experts_per_tok": 2})",
    .gguf_pairs = true,
};

}  // namespace penstock
