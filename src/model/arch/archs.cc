#include "model/arch/archs.h"

#include <nlohmann/json.hpp>

namespace penstock {

// Each in its own file.
void configure_llama(ConfigReader&, ModelConfig&);
void configure_mistral(ConfigReader&, ModelConfig&);
void configure_mixtral(ConfigReader&, ModelConfig&);
void mixtral_names(NameTable&);
void configure_granite(ConfigReader&, ModelConfig&);
void configure_qwen2(ConfigReader&, ModelConfig&);
void configure_qwen3(ConfigReader&, ModelConfig&);
void configure_qwen3_moe(ConfigReader&, ModelConfig&);
void configure_gemma(ConfigReader&, ModelConfig&);
void configure_gemma2(ConfigReader&, ModelConfig&);
void configure_gemma3(ConfigReader&, ModelConfig&);
void gemma3_names(NameTable&);
void configure_phi3(ConfigReader&, ModelConfig&);
void configure_olmo2(ConfigReader&, ModelConfig&);
void configure_gpt2(ConfigReader&, ModelConfig&);
void gpt2_names(NameTable&);
void configure_bitnet(ConfigReader&, ModelConfig&);
void configure_bitnet_silu(ConfigReader&, ModelConfig&);

namespace {

constexpr std::string_view kLlama[] = {"llama", "LlamaForCausalLM"};
constexpr std::string_view kMistral[] = {"mistral", "MistralForCausalLM"};
constexpr std::string_view kMixtral[] = {"mixtral", "MixtralForCausalLM"};
constexpr std::string_view kGranite[] = {"granite", "GraniteForCausalLM"};
constexpr std::string_view kQwen2[] = {"qwen2", "Qwen2ForCausalLM"};
constexpr std::string_view kQwen3[] = {"qwen3", "Qwen3ForCausalLM"};
constexpr std::string_view kQwen3Moe[] = {"qwen3_moe", "Qwen3MoeForCausalLM"};
constexpr std::string_view kGemma[] = {"gemma", "GemmaForCausalLM"};
constexpr std::string_view kGemma2[] = {"gemma2", "Gemma2ForCausalLM"};
constexpr std::string_view kGemma3[] = {"gemma3_text", "gemma3", "Gemma3ForCausalLM",
                                        "Gemma3ForConditionalGeneration"};
constexpr std::string_view kPhi3[] = {"phi3", "Phi3ForCausalLM"};
constexpr std::string_view kOlmo2[] = {"olmo2", "Olmo2ForCausalLM"};
constexpr std::string_view kGpt2[] = {"gpt2", "GPT2LMHeadModel"};
constexpr std::string_view kBitnet[] = {"bitnet", "BitNetForCausalLM"};

constexpr std::string_view kGemmaDefaults =
    R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh"})";
constexpr std::string_view kGemma2Defaults =
    R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256})";
constexpr std::string_view kGemma3Defaults =
    R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "max_position_embeddings": 131072,
        "query_pre_attn_scalar": 256})";
constexpr std::string_view kMistralDefaults = R"({"num_key_value_heads": 8, "sliding_window": 4096})";
constexpr std::string_view kGpt2Defaults =
    R"({"tie_word_embeddings": true, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})";
constexpr std::string_view kBitnetDefaults =
    R"({"hidden_act": "relu2", "rms_norm_eps": 1e-5, "rope_theta": 500000.0})";
constexpr std::string_view kMixtralDefaults =
    R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6})";
constexpr std::string_view kPhi3Defaults = R"({"rms_norm_eps": 1e-5})";
constexpr std::string_view kQwen3Defaults = R"({"head_dim": 128})";

// In GGUF Mistral and Mixtral are `llama`; `bitnet` is the first BitNet (SiLU), `bitnet-b1.58` the 2B-4T one.
constexpr Architecture kArchitectures[] = {
    {"llama", kLlama, configure_llama, nullptr, decoder_forward},
    {"mistral", kMistral, configure_mistral, nullptr, decoder_forward, kMistralDefaults},
    {"mixtral", kMixtral, configure_mixtral, mixtral_names, decoder_forward, kMixtralDefaults},
    {"granite", kGranite, configure_granite, nullptr, decoder_forward},
    {"qwen2", kQwen2, configure_qwen2, nullptr, decoder_forward},
    {"qwen3", kQwen3, configure_qwen3, nullptr, decoder_forward, kQwen3Defaults},
    {"qwen3moe", kQwen3Moe, configure_qwen3_moe, nullptr, decoder_forward},
    {"gemma", kGemma, configure_gemma, nullptr, decoder_forward, kGemmaDefaults},
    {"gemma2", kGemma2, configure_gemma2, nullptr, decoder_forward, kGemma2Defaults},
    {"gemma3", kGemma3, configure_gemma3, gemma3_names, decoder_forward, kGemma3Defaults},
    {"phi3", kPhi3, configure_phi3, nullptr, decoder_forward, kPhi3Defaults},
    {"olmo2", kOlmo2, configure_olmo2, nullptr, decoder_forward},
    {"gpt2", kGpt2, configure_gpt2, gpt2_names, gpt2_forward, kGpt2Defaults},
    {"bitnet-b1.58", kBitnet, configure_bitnet, nullptr, decoder_forward, kBitnetDefaults},
    {"bitnet", {}, configure_bitnet_silu, nullptr, decoder_forward},
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return nullptr;
}

void read_windows(ConfigReader& reader, ModelConfig& config, int pattern, int default_window) {
  const int window =
      reader.integer({"attention.sliding_window", "sliding_window"}, 0, 1 << 30, default_window);
  const Key list_key{"attention.sliding_window_pattern", "layer_types"};
  const nlohmann::json* list = reader.find(list_key);
  if (list != nullptr && list->is_number()) {
    pattern = reader.integer(list_key, 0, 1024);
    list = nullptr;
  }
  if (list != nullptr && (!list->is_array() || list->size() != config.layers.size())) {
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("{}: expected a list of {} layers", reader.gguf() ? list_key.gguf : list_key.hf,
                            config.layers.size()));
    return;
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    bool sliding = pattern < 2 || (i + 1) % static_cast<size_t>(pattern) != 0;
    if (list != nullptr) {
      const nlohmann::json& item = (*list)[i];
      if (item.is_string() && item != "sliding_attention" && item != "full_attention") {
        reader.fail(
            ErrorCode::kUnsupported,
            fmt::format("layer_types: expected sliding_attention or full_attention, got {}", item.dump()));
      }
      sliding = item.is_boolean()  ? item.get<bool>()
                : item.is_number() ? item != 0
                                   : item == "sliding_attention";
    }
    config.layers[i].window = sliding ? window : 0;
  }
}

void read_experts(ConfigReader& reader, ModelConfig& config) {
  const Key count = reader.has({"expert_count", "num_experts"}) ? Key{"expert_count", "num_experts"}
                                                                : Key{"expert_count", "num_local_experts"};
  config.n_experts = reader.integer(count, 1, 4096);
  config.n_active_experts = reader.integer({"expert_used_count", "num_experts_per_tok"}, 1, config.n_experts);
  config.expert_ffn_dim = reader.integer({"expert_feed_forward_length", "moe_intermediate_size"}, 1, 1 << 20,
                                         std::max(config.ffn_dim, 1));
  config.normalize_experts = reader.flag({"expert_weights_norm", ""}, true);
  for (LayerConfig& layer : config.layers) layer.moe = true;
}

}  // namespace penstock
