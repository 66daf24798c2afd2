// Gemma 1, 2 and 3 (text), VaultGemma. Hugging Face stores norm weights less one, GGUF as they are
// applied.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/arch/rope.h"

namespace penstock {

namespace {

void configure_gemma(ConfigReader& reader, ModelConfig& config) {
  config.norm.offset = reader.gguf() ? 0.0f : 1.0f;
  // Gemma 1 files name the exact GELU but mean the tanh approximation.
  const bool misnamed = config.arch == "gemma" && config.ffn.activation.kind == Activation::kGelu;
  if (reader.gguf() || misnamed) config.ffn.activation = Activation::kGeluTanh;
  config.embedding.scale = std::sqrt(static_cast<float>(config.model_dim));
}

// q.k is divided by the root of query_pre_attn_scalar. GGUF does not have it: it is the head size
// in all published models but the 27B ones (known by their layers), where it is the model's width
// per head.
void read_attention_scale(ConfigReader& reader, ModelConfig& config, int layers_of_27b) {
  const bool is_27b = reader.gguf() && config.n_layers == layers_of_27b;
  const float fallback =
      is_27b          ? static_cast<float>(config.model_dim) / static_cast<float>(config.n_heads)
      : reader.gguf() ? static_cast<float>(config.head_dim)
                      : 256.0f;
  const float scalar = reader.number({"", "query_pre_attn_scalar"}, 1e-3f, 1e6f, fallback);
  config.attention.scale =
      reader.number({"attention.scale", ""}, -1e6f, 1e6f, 1.0f / std::sqrt(scalar));
}

void configure_gemma2(ConfigReader& reader, ModelConfig& config) {
  configure_gemma(reader, config);
  config.residual.norms = NormPlacement::kBoth;
  config.attention.softcap = reader.number({"attn_logit_softcapping", "attn_logit_softcapping"},
                                           0.0f, 1e6f, reader.gguf() ? 50.0f : 0.0f);
  config.output.softcap = reader.number({"final_logit_softcapping", "final_logit_softcapping"},
                                        0.0f, 1e6f, reader.gguf() ? 30.0f : 0.0f);
  read_attention_scale(reader, config, 46);
  read_windows(reader, config, 2, 4096);
}

// Gemma 2 without norms after sub-layers.
void configure_vaultgemma(ConfigReader& reader, ModelConfig& config) {
  configure_gemma2(reader, config);
  config.residual.norms = NormPlacement::kPre;
}

void vaultgemma_names(NameTable& names, const ModelConfig&) {
  names[tensor::kFfnNorm] = "pre_feedforward_layernorm";
}

}  // namespace

void read_local_rope(ConfigReader& reader, ModelConfig& config) {
  using nlohmann::json;
  RopeConfig local;
  local.rotary_dim = config.ropes[0].rotary_dim;
  local.theta =
      reader.number({"rope.freq_base_swa", "rope_local_base_freq"}, 1.0f, 1e12f, 10000.0f);
  const json* parameters = reader.find({"", "rope_parameters"});
  if (parameters != nullptr && parameters->is_object() && parameters->contains("full_attention")) {
    config.ropes[0] = read_hf_rope(reader, (*parameters)["full_attention"], config, 1e6f);
    if (parameters->contains("sliding_attention"))
      local = read_hf_rope(reader, (*parameters)["sliding_attention"], config, 10000.0f);
  } else if (!reader.has({"rope.freq_base", "rope_theta"})) {
    config.ropes[0].theta = 1e6f;
  }
  config.ropes.push_back(local);
  for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? 1 : 0;
}

void describe_local_rope(ConfigWriter& writer, const ModelConfig& config) {
  const auto share = [&config](const RopeConfig& rope) {
    return static_cast<double>(rope.rotary_dim) / config.head_dim;
  };
  const RopeConfig &full = config.ropes[0], &local = config.ropes[1];
  writer.set({"rope.freq_base_swa", ""}, local.theta);
  writer.set_inside({"", "rope_parameters"}, "partial_rotary_factor", share(full));
  writer.nest({"", "rope_parameters"}, "full_attention",
              {{"sliding_attention",
                {{"rope_type", "default"},
                 {"rope_theta", local.theta},
                 {"partial_rotary_factor", share(local)}}}});
  writer.erase({"", "rope_scaling"});
  writer.erase({"", "partial_rotary_factor"});
}

namespace {

void configure_gemma3(ConfigReader& reader, ModelConfig& config) {
  configure_gemma(reader, config);
  config.residual.norms = NormPlacement::kBoth;
  config.attention.qk_norm = QkNorm::kHead;
  config.output.softcap =
      reader.number({"final_logit_softcapping", "final_logit_softcapping"}, 0.0f, 1e6f, 0.0f);
  read_attention_scale(reader, config, 62);
  const int pattern = reader.integer({"", "sliding_window_pattern"}, 1, 1024, 6);
  read_windows(reader, config, pattern, 4096);
  read_local_rope(reader, config);
  if (!reader.flag({"", "use_bidirectional_attention"}, config.arch == "gemma-embedding")) {
    for (LayerConfig& layer : config.layers) layer.sees_parts = true;
    return;
  }
  // EmbeddingGemma. Half of the window is before a token, half behind it.
  config.attention.causal = false;
  config.output.has_head = false;
  for (LayerConfig& layer : config.layers)
    layer.window = layer.window > 0 ? layer.window / 2 + 1 : 0;
}

constexpr std::string_view kGemma2Defaults =
    R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256,
        "num_attention_heads": 8, "num_key_value_heads": 4})";

constexpr std::string_view kGemma3Defaults =
    R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "max_position_embeddings": 131072,
        "query_pre_attn_scalar": 256})";

}  // namespace

extern constinit const Architecture kGemma = {
    .name = "gemma",
    .title = "Gemma",
    .hf_types = {"gemma", "GemmaForCausalLM"},
    .configure = configure_gemma,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh"})",
    .hf_norms_less_one = true,
};

namespace {

constexpr MeaningfulKey kGemmaKeys[] = {{{"attn_logit_softcapping", "attn_logit_softcapping"}, 0},
                                        {{"final_logit_softcapping", "final_logit_softcapping"}, 0},
                                        {{"", "use_bidirectional_attention"}, 0}};

}  // namespace

extern constinit const Architecture kGemma2 = {
    .name = "gemma2",
    .title = "Gemma 2",
    .hf_types = {"gemma2", "Gemma2ForCausalLM"},
    .configure = configure_gemma2,
    .forward = decoder_forward,
    .hf_defaults = kGemma2Defaults,
    .hf_norms_less_one = true,
    .own_keys = kGemmaKeys,
};

extern constinit const Architecture kVaultGemma = {
    .name = "gemma-vault",
    .title = "VaultGemma",
    .hf_types = {"vaultgemma", "VaultGemmaForCausalLM"},
    .configure = configure_vaultgemma,
    .hf_names = vaultgemma_names,
    .forward = decoder_forward,
    .hf_defaults = kGemma2Defaults,
    .hf_norms_less_one = true,
};

extern constinit const Architecture kGemma3 = {
    .name = "gemma3",
    .title = "Gemma 3",
    .hf_types = {"gemma3_text", "gemma3", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
    .configure = configure_gemma3,
    .forward = decoder_forward,
    .hf_defaults = kGemma3Defaults,
    .hf_norms_less_one = true,
};

extern constinit const Architecture kEmbeddingGemma = {
    .name = "gemma-embedding",
    .title = "EmbeddingGemma (encoder)",
    .hf_types = {"gemma3_text", "Gemma3TextModel"},
    .configure = configure_gemma3,
    .forward = decoder_forward,
    .hf_defaults = kGemma3Defaults,
    .hf_norms_less_one = true,
};

}  // namespace penstock
