// THE list of decoders with experts in attention's layers; those with states are in archs.cc and scans.cc.
#include "model/arch/archs.h"
#include "model/arch/hf_defaults.h"

namespace penstock {

// Each in its own file.
void configure_mixtral(ConfigReader&, ModelConfig&);
void configure_qwen3_vl_moe(ConfigReader&, ModelConfig&);
void configure_qwen3_moe(ConfigReader&, ModelConfig&);
void configure_qwen2_moe(ConfigReader&, ModelConfig&);
void configure_granite_moe(ConfigReader&, ModelConfig&);
void configure_minimax_m2(ConfigReader&, ModelConfig&);
void configure_ernie4_5_moe(ConfigReader&, ModelConfig&);
void configure_phimoe(ConfigReader&, ModelConfig&);
void configure_deepseek2(ConfigReader&, ModelConfig&);
void configure_deepseek3(ConfigReader&, ModelConfig&);
void configure_glm4_moe_lite(ConfigReader&, ModelConfig&);
void configure_llama4(ConfigReader&, ModelConfig&);
void configure_gpt_oss(ConfigReader&, ModelConfig&);
void configure_glm4_moe(ConfigReader&, ModelConfig&);
void configure_mistral4(ConfigReader&, ModelConfig&);
void configure_solar_open(ConfigReader&, ModelConfig&);
void configure_dots1(ConfigReader&, ModelConfig&);
void configure_exaone_moe(ConfigReader&, ModelConfig&);
void configure_hunyuan_moe(ConfigReader&, ModelConfig&);
void configure_hy_v3(ConfigReader&, ModelConfig&);
void configure_olmoe(ConfigReader&, ModelConfig&);
void configure_flex_olmo(ConfigReader&, ModelConfig&);
void configure_afmoe(ConfigReader&, ModelConfig&);
void configure_granite_swa(ConfigReader&, ModelConfig&);
void mistral4_names(NameTable&, const ModelConfig&);
void mistral4_gguf_names(NameTable&, const ModelConfig&);
void exaone_moe_names(NameTable&, const ModelConfig&);
void hunyuan_moe_names(NameTable&, const ModelConfig&);
void hy_v3_names(NameTable&, const ModelConfig&);
void hy_v3_gguf_names(NameTable&, const ModelConfig&);
void afmoe_names(NameTable&, const ModelConfig&);
void granite_swa_names(NameTable&, const ModelConfig&);
void granite_swa_gguf_names(NameTable&, const ModelConfig&);
void describe_mistral4(ConfigWriter&, const ModelConfig&);
void describe_dots1(ConfigWriter&, const ModelConfig&);
void describe_exaone_moe(ConfigWriter&, const ModelConfig&);
void describe_hunyuan_moe(ConfigWriter&, const ModelConfig&);
void describe_hy_v3(ConfigWriter&, const ModelConfig&);
void describe_olmoe(ConfigWriter&, const ModelConfig&);
void describe_afmoe(ConfigWriter&, const ModelConfig&);
void describe_granite_swa(ConfigWriter&, const ModelConfig&);
void mixtral_names(NameTable&, const ModelConfig&);
void qwen3_vl_moe_names(NameTable&, const ModelConfig&);
void qwen2_moe_names(NameTable&, const ModelConfig&);
void granite_moe_names(NameTable&, const ModelConfig&);
void minimax_m2_names(NameTable&, const ModelConfig&);
void ernie4_5_moe_names(NameTable&, const ModelConfig&);
void llama4_names(NameTable&, const ModelConfig&);
void gpt_oss_names(NameTable&, const ModelConfig&);
void gpt_oss_gguf_names(NameTable&, const ModelConfig&);
void glm4_moe_gguf_names(NameTable&, const ModelConfig&);
void describe_qwen2_moe(ConfigWriter&, const ModelConfig&);
void describe_granite_moe(ConfigWriter&, const ModelConfig&);
void describe_minimax_m2(ConfigWriter&, const ModelConfig&);
void describe_ernie4_5_moe(ConfigWriter&, const ModelConfig&);
void describe_phimoe(ConfigWriter&, const ModelConfig&);
void describe_deepseek(ConfigWriter&, const ModelConfig&);
void describe_llama4(ConfigWriter&, const ModelConfig&);
void describe_gpt_oss(ConfigWriter&, const ModelConfig&);
void describe_glm4_moe(ConfigWriter&, const ModelConfig&);

namespace {

constexpr std::string_view kMixtral[] = {"mixtral", "MixtralForCausalLM"};
constexpr std::string_view kQwen3VlMoe[] = {"qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration",
                                            "qwen3_vl_moe"};
constexpr std::string_view kQwen3Moe[] = {"qwen3_moe", "Qwen3MoeForCausalLM"};
constexpr std::string_view kQwen2Moe[] = {"qwen2_moe", "Qwen2MoeForCausalLM"};
constexpr std::string_view kGraniteMoe[] = {"granitemoe", "GraniteMoeForCausalLM", "granitemoeshared",
                                            "GraniteMoeSharedForCausalLM"};
constexpr std::string_view kMiniMaxM2[] = {"minimax_m2", "MiniMaxM2ForCausalLM"};
constexpr std::string_view kErnie45Moe[] = {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"};
constexpr std::string_view kPhiMoe[] = {"phimoe", "PhimoeForCausalLM", "PhiMoEForCausalLM"};
constexpr std::string_view kDeepSeek2[] = {"deepseek_v2", "DeepseekV2ForCausalLM"};
constexpr std::string_view kDeepSeek3[] = {"deepseek_v3", "DeepseekV3ForCausalLM", "kimi_k2"};
constexpr std::string_view kGlm4MoeLite[] = {"glm4_moe_lite", "Glm4MoeLiteForCausalLM"};
constexpr std::string_view kLlama4[] = {"llama4_text", "Llama4ForCausalLM", "llama4",
                                        "Llama4ForConditionalGeneration"};
constexpr std::string_view kGptOss[] = {"gpt_oss", "GptOssForCausalLM"};
constexpr std::string_view kGlm4Moe[] = {"glm4_moe", "Glm4MoeForCausalLM"};
constexpr std::string_view kMistral4[] = {"mistral4", "Mistral4ForCausalLM"};
constexpr std::string_view kSolarOpen[] = {"solar_open", "SolarOpenForCausalLM"};
constexpr std::string_view kDots1[] = {"dots1", "Dots1ForCausalLM"};
constexpr std::string_view kExaoneMoe[] = {"exaone_moe", "ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"};
constexpr std::string_view kHunyuanMoe[] = {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"};
constexpr std::string_view kHyV3[] = {"hy_v3", "HYV3ForCausalLM"};
constexpr std::string_view kOlmoe[] = {"olmoe", "OlmoeForCausalLM"};
constexpr std::string_view kFlexOlmo[] = {"flex_olmo", "FlexOlmoForCausalLM"};
constexpr std::string_view kAfmoe[] = {"afmoe", "AfmoeForCausalLM"};
constexpr std::string_view kGraniteSwa[] = {"granite_swa", "GraniteSWAForCausalLM", "granitemoe_swa",
                                            "GraniteMoeSWAForCausalLM"};

constexpr Architecture kMixtures[] = {
    {.name = "mixtral",
     .hf_types = kMixtral,
     .configure = configure_mixtral,
     .hf_names = mixtral_names,
     .forward = decoder_forward,
     .hf_defaults = kMixtralDefaults,
     .gguf_pairs = true},
    {.name = "qwen3moe", .hf_types = kQwen3Moe, .configure = configure_qwen3_moe, .forward = decoder_forward},
    {.name = "qwen3vlmoe",
     .hf_types = kQwen3VlMoe,
     .configure = configure_qwen3_vl_moe,
     .hf_names = qwen3_vl_moe_names,
     .forward = decoder_forward,
     .hf_defaults = kQwen3VlMoeDefaults,
     .describe = describe_qwen_vl},
    {.name = "qwen2moe",
     .hf_types = kQwen2Moe,
     .configure = configure_qwen2_moe,
     .hf_names = qwen2_moe_names,
     .forward = decoder_forward,
     .describe = describe_qwen2_moe},
    {.name = "granitemoe",
     .hf_types = kGraniteMoe,
     .configure = configure_granite_moe,
     .hf_names = granite_moe_names,
     .forward = decoder_forward,
     .hf_defaults = kGraniteMoeDefaults,
     .describe = describe_granite_moe,
     .gguf_pairs = true},
    {.name = "minimax-m2",
     .hf_types = kMiniMaxM2,
     .configure = configure_minimax_m2,
     .hf_names = minimax_m2_names,
     .forward = decoder_forward,
     .hf_defaults = kMiniMaxM2Defaults,
     .describe = describe_minimax_m2,
     .partial_rope = true},
    {.name = "ernie4_5-moe",
     .hf_types = kErnie45Moe,
     .configure = configure_ernie4_5_moe,
     .hf_names = ernie4_5_moe_names,
     .forward = decoder_forward,
     .hf_defaults = kErnie45MoeDefaults,
     .describe = describe_ernie4_5_moe},
    {.name = "phimoe",
     .hf_types = kPhiMoe,
     .configure = configure_phimoe,
     .hf_names = mixtral_names,
     .forward = decoder_forward,
     .hf_defaults = kPhiMoeDefaults,
     .describe = describe_phimoe},
    {.name = "deepseek2",
     .hf_types = kDeepSeek2,
     .configure = configure_deepseek2,
     .forward = decoder_forward,
     .hf_defaults = kDeepSeek2Defaults,
     .describe = describe_deepseek,
     .partial_rope = true},
    {.name = "deepseek3",
     .hf_types = kDeepSeek3,
     .configure = configure_deepseek3,
     .forward = decoder_forward,
     .hf_defaults = kDeepSeek3Defaults,
     .describe = describe_deepseek,
     .partial_rope = true},
    {.name = "glm4moelite",
     .hf_types = kGlm4MoeLite,
     .configure = configure_glm4_moe_lite,
     .forward = decoder_forward,
     .hf_defaults = kGlm4MoeLiteDefaults,
     .describe = describe_deepseek,
     .partial_rope = true},
    {.name = "llama4",
     .hf_types = kLlama4,
     .configure = configure_llama4,
     .hf_names = llama4_names,
     .forward = decoder_forward,
     .hf_defaults = kLlama4Defaults,
     .describe = describe_llama4},
    {.name = "gpt-oss",
     .hf_types = kGptOss,
     .configure = configure_gpt_oss,
     .hf_names = gpt_oss_names,
     .forward = decoder_forward,
     .hf_defaults = kGptOssDefaults,
     .describe = describe_gpt_oss,
     .gguf_names = gpt_oss_gguf_names},
    {.name = "glm4moe",
     .hf_types = kGlm4Moe,
     .configure = configure_glm4_moe,
     .forward = decoder_forward,
     .hf_defaults = kGlm4MoeDefaults,
     .describe = describe_glm4_moe,
     .gguf_names = glm4_moe_gguf_names,
     .partial_rope = true},
    {.name = "mistral4",
     .hf_types = kMistral4,
     .configure = configure_mistral4,
     .hf_names = mistral4_names,
     .forward = decoder_forward,
     .hf_defaults = kMistral4Defaults,
     .describe = describe_mistral4,
     .gguf_names = mistral4_gguf_names,
     .partial_rope = true},
    {.name = "solaropen",
     .hf_types = kSolarOpen,
     .configure = configure_solar_open,
     .forward = decoder_forward,
     .hf_defaults = kSolarOpenDefaults,
     .describe = describe_dots1,
     .gguf_names = glm4_moe_gguf_names,
     .partial_rope = true},
    {.name = "dots1",
     .hf_types = kDots1,
     .configure = configure_dots1,
     .forward = decoder_forward,
     .hf_defaults = kDots1Defaults,
     .describe = describe_dots1},
    {.name = "exaone-moe",
     .hf_types = kExaoneMoe,
     .configure = configure_exaone_moe,
     .hf_names = exaone_moe_names,
     .forward = decoder_forward,
     .hf_defaults = kExaoneMoeDefaults,
     .hf_aliases = kExaoneMoeAliases,
     .describe = describe_exaone_moe},
    {.name = "hunyuan-moe",
     .hf_types = kHunyuanMoe,
     .configure = configure_hunyuan_moe,
     .hf_names = hunyuan_moe_names,
     .forward = decoder_forward,
     .hf_defaults = kHunyuanDefaults,
     .describe = describe_hunyuan_moe},
    {.name = "hy_v3",
     .hf_types = kHyV3,
     .configure = configure_hy_v3,
     .hf_names = hy_v3_names,
     .forward = decoder_forward,
     .hf_defaults = kHyV3Defaults,
     .hf_aliases = kHyV3Aliases,
     .describe = describe_hy_v3,
     .gguf_names = hy_v3_gguf_names},
    {.name = "olmoe",
     .hf_types = kOlmoe,
     .configure = configure_olmoe,
     .forward = decoder_forward,
     .hf_defaults = kOlmoeDefaults,
     .describe = describe_olmoe},
    {.name = "flexolmo",
     .hf_types = kFlexOlmo,
     .configure = configure_flex_olmo,
     .forward = decoder_forward,
     .hf_defaults = kFlexOlmoDefaults,
     .describe = describe_olmoe},
    {.name = "afmoe",
     .hf_types = kAfmoe,
     .configure = configure_afmoe,
     .hf_names = afmoe_names,
     .forward = decoder_forward,
     .hf_defaults = kAfmoeDefaults,
     .hf_aliases = kAfmoeAliases,
     .describe = describe_afmoe},
    {.name = "granite_swa",
     .hf_types = kGraniteSwa,
     .configure = configure_granite_swa,
     .hf_names = granite_swa_names,
     .forward = decoder_forward,
     .hf_defaults = kGraniteSwaDefaults,
     .describe = describe_granite_swa,
     .gguf_names = granite_swa_gguf_names,
     .gguf_pairs = true},
};

}  // namespace

std::span<const Architecture> mixture_architectures() { return kMixtures; }

}  // namespace penstock
