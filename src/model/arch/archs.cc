#include "model/arch/archs.h"

#include <vector>

#include "model/arch/hf_defaults.h"

namespace penstock {

// Each in its own file.
void configure_llama(ConfigReader&, ModelConfig&);
void configure_mistral(ConfigReader&, ModelConfig&);
void configure_ministral3(ConfigReader&, ModelConfig&);
void configure_granite(ConfigReader&, ModelConfig&);
void configure_smollm3(ConfigReader&, ModelConfig&);
void configure_arcee(ConfigReader&, ModelConfig&);
void configure_seed_oss(ConfigReader&, ModelConfig&);
void configure_ernie4_5(ConfigReader&, ModelConfig&);
void configure_apertus(ConfigReader&, ModelConfig&);
void configure_qwen2(ConfigReader&, ModelConfig&);
void configure_qwen3(ConfigReader&, ModelConfig&);
void configure_gemma(ConfigReader&, ModelConfig&);
void configure_gemma2(ConfigReader&, ModelConfig&);
void configure_vaultgemma(ConfigReader&, ModelConfig&);
void configure_gemma3(ConfigReader&, ModelConfig&);
void configure_gemma3n(ConfigReader&, ModelConfig&);
void configure_gemma4(ConfigReader&, ModelConfig&);
void configure_phi3(ConfigReader&, ModelConfig&);
void configure_olmo2(ConfigReader&, ModelConfig&);
void configure_olmo3(ConfigReader&, ModelConfig&);
void configure_youtu(ConfigReader&, ModelConfig&);
void configure_minicpm3(ConfigReader&, ModelConfig&);
void configure_nanochat(ConfigReader&, ModelConfig&);
void configure_exaone(ConfigReader&, ModelConfig&);
void configure_exaone4(ConfigReader&, ModelConfig&);
void configure_glm4(ConfigReader&, ModelConfig&);
void configure_hunyuan(ConfigReader&, ModelConfig&);
void configure_helium(ConfigReader&, ModelConfig&);
void configure_ministral(ConfigReader&, ModelConfig&);
void configure_cwm(ConfigReader&, ModelConfig&);
void configure_hyperclovax(ConfigReader&, ModelConfig&);
void configure_nemotron(ConfigReader&, ModelConfig&);
void configure_jais2(ConfigReader&, ModelConfig&);
void configure_glm(ConfigReader&, ModelConfig&);
void configure_cohere(ConfigReader&, ModelConfig&);
void configure_cohere2(ConfigReader&, ModelConfig&);
void configure_lfm2(ConfigReader&, ModelConfig&);
void configure_lfm2_moe(ConfigReader&, ModelConfig&);
void configure_lfm3(ConfigReader&, ModelConfig&);
void configure_qwen3_next(ConfigReader&, ModelConfig&);
void configure_qwen35(ConfigReader&, ModelConfig&);
void configure_qwen35_moe(ConfigReader&, ModelConfig&);
void configure_kimi_linear(ConfigReader&, ModelConfig&);
void configure_bitnet(ConfigReader&, ModelConfig&);
void configure_bitnet_silu(ConfigReader&, ModelConfig&);
void vaultgemma_names(NameTable&, const ModelConfig&);
void nanochat_names(NameTable&, const ModelConfig&);
void minicpm3_gguf_names(NameTable&, const ModelConfig&);
void exaone_names(NameTable&, const ModelConfig&);
void apertus_names(NameTable&, const ModelConfig&);
void gemma3n_names(NameTable&, const ModelConfig&);
void gemma3n_gguf_names(NameTable&, const ModelConfig&);
void granite_gguf_names(NameTable&, const ModelConfig&);
void gemma4_names(NameTable&, const ModelConfig&);
void gemma4_gguf_names(NameTable&, const ModelConfig&);
void glm4_names(NameTable&, const ModelConfig&);
void hunyuan_names(NameTable&, const ModelConfig&);
void lfm2_names(NameTable&, const ModelConfig&);
void lfm3_names(NameTable&, const ModelConfig&);
void hyperclovax_names(NameTable&, const ModelConfig&);
void lfm2_gguf_names(NameTable&, const ModelConfig&);
void qwen3_next_names(NameTable&, const ModelConfig&);
void qwen35_names(NameTable&, const ModelConfig&);
void qwen3_next_gguf_names(NameTable&, const ModelConfig&);
void qwen35_gguf_names(NameTable&, const ModelConfig&);
void kimi_linear_names(NameTable&, const ModelConfig&);
void kimi_linear_gguf_names(NameTable&, const ModelConfig&);
void seed_oss_gguf_names(NameTable&, const ModelConfig&);
void describe_youtu(ConfigWriter&, const ModelConfig&);
void describe_minicpm3(ConfigWriter&, const ModelConfig&);
void describe_nanochat(ConfigWriter&, const ModelConfig&);
void describe_granite(ConfigWriter&, const ModelConfig&);
void describe_apertus(ConfigWriter&, const ModelConfig&);
void describe_smollm3(ConfigWriter&, const ModelConfig&);
void describe_biases(ConfigWriter&, const ModelConfig&);
void describe_hyperclovax(ConfigWriter&, const ModelConfig&);
void describe_nemotron(ConfigWriter&, const ModelConfig&);
void describe_jais2(ConfigWriter&, const ModelConfig&);
void describe_ernie4_5(ConfigWriter&, const ModelConfig&);
void describe_exaone4(ConfigWriter&, const ModelConfig&);
void describe_glm4(ConfigWriter&, const ModelConfig&);
void describe_hunyuan(ConfigWriter&, const ModelConfig&);
void describe_cohere(ConfigWriter&, const ModelConfig&);
void describe_lfm2(ConfigWriter&, const ModelConfig&);
void describe_lfm3(ConfigWriter&, const ModelConfig&);
void describe_lfm2_moe(ConfigWriter&, const ModelConfig&);
void describe_qwen_delta(ConfigWriter&, const ModelConfig&);
void describe_kimi_linear(ConfigWriter&, const ModelConfig&);
void describe_gemma3n(ConfigWriter&, const ModelConfig&);
void describe_gemma4(ConfigWriter&, const ModelConfig&);

namespace {

constexpr std::string_view kLlama[] = {"llama", "LlamaForCausalLM"};
constexpr std::string_view kInternLm3[] = {"internlm3", "InternLM3ForCausalLM"};
constexpr std::string_view kIQuestCoder[] = {"iquestcoder", "IQuestCoderForCausalLM"};
constexpr std::string_view kYoutu[] = {"youtu", "YoutuForCausalLM"};
constexpr std::string_view kMiniCpm3[] = {"minicpm3", "MiniCPM3ForCausalLM"};
constexpr std::string_view kNanoChat[] = {"nanochat", "NanoChatForCausalLM"};
constexpr std::string_view kExaone[] = {"exaone", "ExaoneForCausalLM"};
constexpr std::string_view kVaultGemma[] = {"vaultgemma", "VaultGemmaForCausalLM"};
constexpr std::string_view kMistral[] = {"mistral", "MistralForCausalLM"};
constexpr std::string_view kMinistral3[] = {"ministral3", "Ministral3ForCausalLM"};
constexpr std::string_view kGranite[] = {"granite", "GraniteForCausalLM"};
constexpr std::string_view kSmolLm3[] = {"smollm3", "SmolLM3ForCausalLM"};
constexpr std::string_view kArcee[] = {"arcee", "ArceeForCausalLM"};
constexpr std::string_view kSeedOss[] = {"seed_oss", "SeedOssForCausalLM"};
constexpr std::string_view kErnie45[] = {"ernie4_5", "Ernie4_5ForCausalLM"};
constexpr std::string_view kApertus[] = {"apertus", "ApertusForCausalLM"};
constexpr std::string_view kQwen2[] = {"qwen2", "Qwen2ForCausalLM"};
constexpr std::string_view kQwen2Vl[] = {"qwen2_vl_text", "Qwen2VLForConditionalGeneration",
                                         "qwen2_vl",      "qwen2_5_vl_text",
                                         "qwen2_5_vl",    "Qwen2_5_VLForConditionalGeneration"};
constexpr std::string_view kQwen3Vl[] = {"qwen3_vl_text", "Qwen3VLForConditionalGeneration", "qwen3_vl"};
constexpr std::string_view kQwen3[] = {"qwen3", "Qwen3ForCausalLM"};
constexpr std::string_view kGemma[] = {"gemma", "GemmaForCausalLM"};
constexpr std::string_view kGemma2[] = {"gemma2", "Gemma2ForCausalLM"};
constexpr std::string_view kPhi3[] = {"phi3", "Phi3ForCausalLM"};
constexpr std::string_view kOlmo2[] = {"olmo2", "Olmo2ForCausalLM"};
constexpr std::string_view kOlmo3[] = {"olmo3", "Olmo3ForCausalLM"};
constexpr std::string_view kExaone4[] = {"exaone4", "Exaone4ForCausalLM"};
constexpr std::string_view kGlm4[] = {"glm4", "Glm4ForCausalLM"};
constexpr std::string_view kGlm4v[] = {"glm4v_text", "Glm4vForConditionalGeneration", "glm4v"};
constexpr std::string_view kHunyuan[] = {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"};
constexpr std::string_view kCohere[] = {"cohere", "CohereForCausalLM"};
constexpr std::string_view kCohere2[] = {"cohere2", "Cohere2ForCausalLM"};
constexpr std::string_view kLfm2[] = {"lfm2", "Lfm2ForCausalLM", "LFM2ForCausalLM"};
constexpr std::string_view kLfm3[] = {"lfm3", "Lfm3ForCausalLM"};
constexpr std::string_view kHelium[] = {"helium", "HeliumForCausalLM"};
constexpr std::string_view kMinistral[] = {"ministral", "MinistralForCausalLM"};
constexpr std::string_view kCwm[] = {"cwm", "CwmForCausalLM"};
constexpr std::string_view kHyperClovaX[] = {"hyperclovax", "HyperCLOVAXForCausalLM"};
constexpr std::string_view kNemotron[] = {"nemotron", "NemotronForCausalLM"};
constexpr std::string_view kJais2[] = {"jais2", "Jais2ForCausalLM"};
constexpr std::string_view kGlm[] = {"glm", "GlmForCausalLM"};
constexpr std::string_view kLfm2Moe[] = {"lfm2_moe", "Lfm2MoeForCausalLM"};
constexpr std::string_view kQwen3Next[] = {"qwen3_next", "Qwen3NextForCausalLM"};
constexpr std::string_view kQwen35[] = {"qwen3_5_text", "Qwen3_5ForCausalLM", "qwen3_5",
                                        "Qwen3_5ForConditionalGeneration"};
constexpr std::string_view kQwen35Moe[] = {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "qwen3_5_moe",
                                           "Qwen3_5MoeForConditionalGeneration"};
constexpr std::string_view kKimiLinear[] = {"kimi_linear", "KimiLinearForCausalLM"};
constexpr std::string_view kBitnet[] = {"bitnet", "BitNetForCausalLM"};
constexpr std::string_view kGemma3[] = {"gemma3_text", "gemma3", "Gemma3ForCausalLM",
                                        "Gemma3ForConditionalGeneration"};
constexpr std::string_view kEmbeddingGemma[] = {"gemma3_text", "Gemma3TextModel"};
constexpr std::string_view kGemma3n[] = {"gemma3n_text", "Gemma3nForCausalLM", "gemma3n",
                                         "Gemma3nForConditionalGeneration"};
constexpr std::string_view kGemma4[] = {"gemma4_text", "Gemma4ForCausalLM", "gemma4",
                                        "Gemma4ForConditionalGeneration"};

// In GGUF `bitnet` is the first BitNet (SiLU), `bitnet-b1.58` the 2B-4T one; gguf_arch() says which names others share.
constexpr Architecture kArchitectures[] = {
    {.name = "llama",
     .hf_types = kLlama,
     .configure = configure_llama,
     .forward = decoder_forward,
     .gguf_pairs = true},
    {.name = "mistral",
     .hf_types = kMistral,
     .configure = configure_mistral,
     .forward = decoder_forward,
     .hf_defaults = kMistralDefaults,
     .gguf_pairs = true},
    {.name = "mistral3",
     .hf_types = kMinistral3,
     .configure = configure_ministral3,
     .forward = decoder_forward,
     .hf_defaults = kMinistral3Defaults,
     .describe = describe_query_scale,
     .gguf_pairs = true},
    {.name = "internlm3",
     .hf_types = kInternLm3,
     .configure = configure_llama,
     .forward = decoder_forward,
     .hf_defaults = kInternLm3Defaults,
     .hf_aliases = kInternLm3Aliases,
     .gguf_pairs = true},
    {.name = "iquestcoder",
     .hf_types = kIQuestCoder,
     .configure = configure_llama,
     .forward = decoder_forward,
     .hf_defaults = kIQuestCoderDefaults,
     .gguf_pairs = true},
    {.name = "youtu",
     .hf_types = kYoutu,
     .configure = configure_youtu,
     .forward = decoder_forward,
     .hf_defaults = kYoutuDefaults,
     .describe = describe_youtu,
     .partial_rope = true},
    {.name = "minicpm3",
     .hf_types = kMiniCpm3,
     .configure = configure_minicpm3,
     .forward = decoder_forward,
     .hf_defaults = kMiniCpm3Defaults,
     .hf_aliases = kMiniCpm3Aliases,
     .describe = describe_minicpm3,
     .gguf_names = minicpm3_gguf_names},
    {.name = "nanochat",
     .hf_types = kNanoChat,
     .configure = configure_nanochat,
     .hf_names = nanochat_names,
     .forward = decoder_forward,
     .hf_defaults = kNanoChatDefaults,
     .describe = describe_nanochat},
    {.name = "exaone",
     .hf_types = kExaone,
     .configure = configure_exaone,
     .hf_names = exaone_names,
     .forward = decoder_forward,
     .hf_defaults = kExaoneDefaults,
     .hf_aliases = kExaoneAliases,
     .describe = describe_biases},
    {.name = "granite",
     .hf_types = kGranite,
     .configure = configure_granite,
     .forward = decoder_forward,
     .describe = describe_granite,
     .gguf_names = granite_gguf_names,
     .gguf_pairs = true},
    {.name = "hyperclovax",
     .hf_types = kHyperClovaX,
     .configure = configure_hyperclovax,
     .hf_names = hyperclovax_names,
     .forward = decoder_forward,
     .describe = describe_hyperclovax,
     .gguf_pairs = true},
    {.name = "ministral",
     .hf_types = kMinistral,
     .configure = configure_ministral,
     .forward = decoder_forward,
     .hf_defaults = kMinistralDefaults},
    {.name = "cwm",
     .hf_types = kCwm,
     .configure = configure_cwm,
     .forward = decoder_forward,
     .hf_defaults = kCwmDefaults},
    {.name = "helium",
     .hf_types = kHelium,
     .configure = configure_helium,
     .forward = decoder_forward,
     .hf_defaults = kHeliumDefaults,
     .describe = describe_biases},
    {.name = "nemotron",
     .hf_types = kNemotron,
     .configure = configure_nemotron,
     .forward = decoder_forward,
     .hf_defaults = kNemotronDefaults,
     .hf_aliases = kNemotronAliases,
     .describe = describe_nemotron,
     .partial_rope = true,
     .hf_norms_less_one = true},
    {.name = "jais2",
     .hf_types = kJais2,
     .configure = configure_jais2,
     .forward = decoder_forward,
     .hf_defaults = kJais2Defaults,
     .describe = describe_jais2},
    {.name = "chatglm",
     .hf_types = kGlm,
     .configure = configure_glm,
     .forward = decoder_forward,
     .hf_defaults = kGlm4Defaults,
     .describe = describe_glm4,
     .partial_rope = true},
    {.name = "smollm3",
     .hf_types = kSmolLm3,
     .configure = configure_smollm3,
     .forward = decoder_forward,
     .hf_defaults = kSmolLm3Defaults,
     .describe = describe_smollm3,
     .gguf_pairs = true},
    {.name = "arcee",
     .hf_types = kArcee,
     .configure = configure_arcee,
     .forward = decoder_forward,
     .hf_defaults = kArceeDefaults,
     .describe = describe_biases,
     .gguf_pairs = true},
    {.name = "seed_oss",
     .hf_types = kSeedOss,
     .configure = configure_seed_oss,
     .forward = decoder_forward,
     .hf_defaults = kSeedOssDefaults,
     .describe = describe_biases,
     .gguf_names = seed_oss_gguf_names},
    {.name = "ernie4_5",
     .hf_types = kErnie45,
     .configure = configure_ernie4_5,
     .forward = decoder_forward,
     .hf_defaults = kErnie45Defaults,
     .describe = describe_ernie4_5},
    {.name = "apertus",
     .hf_types = kApertus,
     .configure = configure_apertus,
     .hf_names = apertus_names,
     .forward = decoder_forward,
     .hf_defaults = kApertusDefaults,
     .describe = describe_apertus},
    {.name = "qwen2", .hf_types = kQwen2, .configure = configure_qwen2, .forward = decoder_forward},
    {.name = "qwen3",
     .hf_types = kQwen3,
     .configure = configure_qwen3,
     .forward = decoder_forward,
     .hf_defaults = kQwen3Defaults},
    {.name = "qwen2vl",
     .hf_types = kQwen2Vl,
     .configure = configure_qwen2,
     .forward = decoder_forward,
     .hf_defaults = kQwen2VlDefaults,
     .describe = describe_qwen_vl},
    {.name = "qwen3vl",
     .hf_types = kQwen3Vl,
     .configure = configure_qwen3,
     .forward = decoder_forward,
     .hf_defaults = kQwen3VlDefaults,
     .describe = describe_qwen_vl},
    {.name = "gemma",
     .hf_types = kGemma,
     .configure = configure_gemma,
     .forward = decoder_forward,
     .hf_defaults = kGemmaDefaults,
     .hf_norms_less_one = true},
    {.name = "gemma2",
     .hf_types = kGemma2,
     .configure = configure_gemma2,
     .forward = decoder_forward,
     .hf_defaults = kGemma2Defaults,
     .hf_norms_less_one = true},
    {.name = "gemma-vault",
     .hf_types = kVaultGemma,
     .configure = configure_vaultgemma,
     .hf_names = vaultgemma_names,
     .forward = decoder_forward,
     .hf_defaults = kGemma2Defaults,
     .hf_norms_less_one = true},
    {.name = "gemma3",
     .hf_types = kGemma3,
     .configure = configure_gemma3,
     .forward = decoder_forward,
     .hf_defaults = kGemma3Defaults,
     .hf_norms_less_one = true},
    {.name = "gemma-embedding",
     .hf_types = kEmbeddingGemma,
     .configure = configure_gemma3,
     .forward = decoder_forward,
     .hf_defaults = kGemma3Defaults,
     .hf_norms_less_one = true},
    {.name = "gemma3n",
     .hf_types = kGemma3n,
     .configure = configure_gemma3n,
     .hf_names = gemma3n_names,
     .forward = gemma3n_forward,
     .hf_defaults = kGemma3nDefaults,
     .describe = describe_gemma3n,
     .gguf_names = gemma3n_gguf_names},
    {.name = "gemma4",
     .hf_types = kGemma4,
     .configure = configure_gemma4,
     .hf_names = gemma4_names,
     .forward = gemma4_forward,
     .hf_defaults = kGemma4Defaults,
     .describe = describe_gemma4,
     .gguf_names = gemma4_gguf_names},
    {.name = "phi3",
     .hf_types = kPhi3,
     .configure = configure_phi3,
     .forward = decoder_forward,
     .hf_defaults = kPhi3Defaults,
     .partial_rope = true},
    {.name = "olmo2",
     .hf_types = kOlmo2,
     .configure = configure_olmo2,
     .forward = decoder_forward,
     .hf_defaults = kOlmo2Defaults},
    {.name = "olmo3",
     .hf_types = kOlmo3,
     .configure = configure_olmo3,
     .forward = decoder_forward,
     .hf_defaults = kOlmo3Defaults},
    {.name = "exaone4",
     .hf_types = kExaone4,
     .configure = configure_exaone4,
     .forward = decoder_forward,
     .hf_defaults = kExaone4Defaults,
     .describe = describe_exaone4},
    {.name = "glm4",
     .hf_types = kGlm4,
     .configure = configure_glm4,
     .hf_names = glm4_names,
     .forward = decoder_forward,
     .hf_defaults = kGlm4Defaults,
     .describe = describe_glm4,
     .partial_rope = true},
    {.name = "glm4",
     .hf_types = kGlm4v,
     .configure = configure_glm4,
     .hf_names = glm4_names,
     .forward = decoder_forward,
     .hf_defaults = kGlm4vDefaults,
     .describe = describe_glm4,
     .partial_rope = true},
    {.name = "hunyuan-dense",
     .hf_types = kHunyuan,
     .configure = configure_hunyuan,
     .hf_names = hunyuan_names,
     .forward = decoder_forward,
     .hf_defaults = kHunyuanDefaults,
     .describe = describe_hunyuan},
    {.name = "command-r",
     .hf_types = kCohere,
     .configure = configure_cohere,
     .forward = parallel_forward,
     .hf_defaults = kCohereDefaults,
     .describe = describe_cohere},
    {.name = "cohere2",
     .hf_types = kCohere2,
     .configure = configure_cohere2,
     .forward = parallel_forward,
     .hf_defaults = kCohere2Defaults,
     .describe = describe_cohere},
    {.name = "lfm2",
     .hf_types = kLfm2,
     .configure = configure_lfm2,
     .hf_names = lfm2_names,
     .forward = decoder_forward,
     .hf_defaults = kLfm2Defaults,
     .hf_aliases = kLfm2Aliases,
     .describe = describe_lfm2,
     .gguf_names = lfm2_gguf_names},
    {.name = "lfm2moe",
     .hf_types = kLfm2Moe,
     .configure = configure_lfm2_moe,
     .hf_names = lfm2_names,
     .forward = decoder_forward,
     .hf_defaults = kLfm2Defaults,
     .hf_aliases = kLfm2Aliases,
     .describe = describe_lfm2_moe,
     .gguf_names = lfm2_gguf_names},
    {.name = "lfm3",
     .hf_types = kLfm3,
     .configure = configure_lfm3,
     .hf_names = lfm3_names,
     .forward = decoder_forward,
     .hf_defaults = kLfm3Defaults,
     .hf_aliases = kLfm2Aliases,
     .describe = describe_lfm3,
     .gguf_names = lfm2_gguf_names},
    {.name = "qwen3next",
     .hf_types = kQwen3Next,
     .configure = configure_qwen3_next,
     .hf_names = qwen3_next_names,
     .forward = decoder_forward,
     .hf_defaults = kQwen3NextDefaults,
     .describe = describe_qwen_delta,
     .gguf_names = qwen3_next_gguf_names,
     .partial_rope = true,
     .hf_norms_less_one = true},
    {.name = "qwen35",
     .hf_types = kQwen35,
     .configure = configure_qwen35,
     .hf_names = qwen35_names,
     .forward = decoder_forward,
     .hf_defaults = kQwen35Defaults,
     .describe = describe_qwen_delta,
     .gguf_names = qwen35_gguf_names,
     .partial_rope = true,
     .hf_norms_less_one = true},
    {.name = "qwen35moe",
     .hf_types = kQwen35Moe,
     .configure = configure_qwen35_moe,
     .hf_names = qwen35_names,
     .forward = decoder_forward,
     .hf_defaults = kQwen35MoeDefaults,
     .describe = describe_qwen_delta,
     .gguf_names = qwen35_gguf_names,
     .partial_rope = true,
     .hf_norms_less_one = true},
    {.name = "kimi-linear",
     .hf_types = kKimiLinear,
     .configure = configure_kimi_linear,
     .hf_names = kimi_linear_names,
     .forward = decoder_forward,
     .hf_defaults = kKimiLinearDefaults,
     .hf_aliases = kKimiLinearAliases,
     .describe = describe_kimi_linear,
     .gguf_names = kimi_linear_gguf_names},
    {.name = "bitnet-b1.58",
     .hf_types = kBitnet,
     .configure = configure_bitnet,
     .forward = decoder_forward,
     .hf_defaults = kBitnetDefaults},
    {.name = "bitnet", .hf_types = {}, .configure = configure_bitnet_silu, .forward = decoder_forward},
};

}  // namespace

std::span<const Architecture> architectures() {
  static const std::vector<Architecture> all = [] {
    std::vector<Architecture> lists(std::begin(kArchitectures), std::end(kArchitectures));
    for (const auto more :
         {classic_architectures(), mixture_architectures(), scan_architectures(), encoder_architectures()})
      lists.insert(lists.end(), more.begin(), more.end());
    return lists;
  }();
  return all;
}

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& architecture : architectures()) {
    if (architecture.name == name) return &architecture;
  }
  return nullptr;
}

}  // namespace penstock
