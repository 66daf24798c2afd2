// THE list of decoders with layer norms, as they were before Llama.
#include "model/arch/archs.h"
#include "model/arch/hf_defaults.h"

namespace penstock {

// In alibi.cc, gpt2.cc, neox.cc and olmo2.cc.
void configure_bloom(ConfigReader&, ModelConfig&);
void configure_falcon(ConfigReader&, ModelConfig&);
void configure_gpt2(ConfigReader&, ModelConfig&);
void configure_biogpt(ConfigReader&, ModelConfig&);
void configure_codegen(ConfigReader&, ModelConfig&);
void configure_gpt_neo(ConfigReader&, ModelConfig&);
void configure_gpt_neox(ConfigReader&, ModelConfig&);
void configure_gptj(ConfigReader&, ModelConfig&);
void configure_mpt(ConfigReader&, ModelConfig&);
void configure_olmo(ConfigReader&, ModelConfig&);
void configure_opt(ConfigReader&, ModelConfig&);
void configure_persimmon(ConfigReader&, ModelConfig&);
void configure_phi2(ConfigReader&, ModelConfig&);
void configure_stablelm(ConfigReader&, ModelConfig&);
void configure_starcoder(ConfigReader&, ModelConfig&);
void configure_xglm(ConfigReader&, ModelConfig&);
void configure_starcoder2(ConfigReader&, ModelConfig&);
void biogpt_names(NameTable&, const ModelConfig&);
void bloom_names(NameTable&, const ModelConfig&);
void codegen_names(NameTable&, const ModelConfig&);
void falcon_gguf_names(NameTable&, const ModelConfig&);
void falcon_names(NameTable&, const ModelConfig&);
void gpt2_names(NameTable&, const ModelConfig&);
void gpt_neo_names(NameTable&, const ModelConfig&);
void gpt_neox_names(NameTable&, const ModelConfig&);
void gptj_names(NameTable&, const ModelConfig&);
void mpt_names(NameTable&, const ModelConfig&);
void opt_names(NameTable&, const ModelConfig&);
void persimmon_names(NameTable&, const ModelConfig&);
void phi2_names(NameTable&, const ModelConfig&);
void stablelm_names(NameTable&, const ModelConfig&);
void xglm_names(NameTable&, const ModelConfig&);
void starcoder2_names(NameTable&, const ModelConfig&);
void starcoder_names(NameTable&, const ModelConfig&);
void describe_biogpt(ConfigWriter&, const ModelConfig&);
void describe_bloom(ConfigWriter&, const ModelConfig&);
void describe_falcon(ConfigWriter&, const ModelConfig&);
void describe_gpt_neo(ConfigWriter&, const ModelConfig&);
void describe_gpt_neox(ConfigWriter&, const ModelConfig&);
void describe_gptj(ConfigWriter&, const ModelConfig&);
void describe_mpt(ConfigWriter&, const ModelConfig&);
void describe_olmo(ConfigWriter&, const ModelConfig&);
void describe_opt(ConfigWriter&, const ModelConfig&);
void describe_persimmon(ConfigWriter&, const ModelConfig&);
void describe_phi2(ConfigWriter&, const ModelConfig&);
void describe_stablelm(ConfigWriter&, const ModelConfig&);
void describe_starcoder(ConfigWriter&, const ModelConfig&);
void describe_starcoder2(ConfigWriter&, const ModelConfig&);

namespace {

constexpr std::string_view kBloom[] = {"bloom", "BloomForCausalLM"};
constexpr std::string_view kBioGpt[] = {"biogpt", "BioGptForCausalLM"};
constexpr std::string_view kCodeGen[] = {"codegen", "CodeGenForCausalLM"};
constexpr std::string_view kFalcon[] = {"falcon", "FalconForCausalLM", "RefinedWeb", "RefinedWebModel"};
constexpr std::string_view kGpt2[] = {"gpt2", "GPT2LMHeadModel"};
constexpr std::string_view kGptJ[] = {"gptj", "GPTJForCausalLM"};
constexpr std::string_view kGptNeo[] = {"gpt_neo", "GPTNeoForCausalLM"};
constexpr std::string_view kGptNeoX[] = {"gpt_neox", "GPTNeoXForCausalLM"};
constexpr std::string_view kMpt[] = {"mpt", "MptForCausalLM", "MPTForCausalLM"};
constexpr std::string_view kOlmo[] = {"olmo", "OlmoForCausalLM"};
constexpr std::string_view kOpt[] = {"opt", "OPTForCausalLM"};
constexpr std::string_view kPersimmon[] = {"persimmon", "PersimmonForCausalLM"};
constexpr std::string_view kPhi2[] = {"phi", "PhiForCausalLM"};
constexpr std::string_view kStableLm[] = {"stablelm", "StableLmForCausalLM"};
constexpr std::string_view kStarcoder[] = {"gpt_bigcode", "GPTBigCodeForCausalLM"};
constexpr std::string_view kStarcoder2[] = {"starcoder2", "Starcoder2ForCausalLM"};

constexpr std::string_view kXglm[] = {"xglm", "XGLMForCausalLM"};

constexpr Architecture kClassics[] = {
    {.name = "gptneox",
     .hf_types = kGptNeoX,
     .configure = configure_gpt_neox,
     .hf_names = gpt_neox_names,
     .forward = parallel_forward,
     .hf_defaults = kGptNeoXDefaults,
     .hf_aliases = kGptNeoXAliases,
     .describe = describe_gpt_neox,
     .partial_rope = true,
     .hf_qkv_by_group = true},
    {.name = "falcon",
     .hf_types = kFalcon,
     .configure = configure_falcon,
     .hf_names = falcon_names,
     .forward = parallel_forward,
     .hf_defaults = kFalconDefaults,
     .hf_aliases = kFalconAliases,
     .describe = describe_falcon,
     .gguf_names = falcon_gguf_names,
     .wide_ffn = true,
     .hf_qkv_by_group = true},
    {.name = "stablelm",
     .hf_types = kStableLm,
     .configure = configure_stablelm,
     .hf_names = stablelm_names,
     .forward = parallel_forward,
     .hf_defaults = kStableLmDefaults,
     .describe = describe_stablelm,
     .partial_rope = true},
    {.name = "starcoder2",
     .hf_types = kStarcoder2,
     .configure = configure_starcoder2,
     .hf_names = starcoder2_names,
     .forward = decoder_forward,
     .hf_defaults = kStarcoder2Defaults,
     .hf_aliases = kStarcoder2Aliases,
     .describe = describe_starcoder2},
    {.name = "phi2",
     .hf_types = kPhi2,
     .configure = configure_phi2,
     .hf_names = phi2_names,
     .forward = parallel_forward,
     .hf_defaults = kPhi2Defaults,
     .describe = describe_phi2,
     .partial_rope = true},
    {.name = "mpt",
     .hf_types = kMpt,
     .configure = configure_mpt,
     .hf_names = mpt_names,
     .forward = decoder_forward,
     .hf_defaults = kTiedDefaults,
     .hf_aliases = kMptAliases,
     .describe = describe_mpt,
     .wide_ffn = true},
    {.name = "bloom",
     .hf_types = kBloom,
     .configure = configure_bloom,
     .hf_names = bloom_names,
     .forward = decoder_forward,
     .hf_defaults = kTiedDefaults,
     .hf_aliases = kBloomAliases,
     .describe = describe_bloom,
     .wide_ffn = true,
     .hf_qkv_by_group = true},
    {.name = "gpt2",
     .hf_types = kGpt2,
     .configure = configure_gpt2,
     .hf_names = gpt2_names,
     .forward = decoder_forward,
     .hf_defaults = kGpt2Defaults,
     .hf_aliases = kGpt2Aliases,
     .wide_ffn = true},
    {.name = "starcoder",
     .hf_types = kStarcoder,
     .configure = configure_starcoder,
     .hf_names = starcoder_names,
     .forward = decoder_forward,
     .hf_defaults = kStarcoderDefaults,
     .hf_aliases = kGpt2Aliases,
     .describe = describe_starcoder,
     .wide_ffn = true,
     .hf_qkv_by_group = true},
    {.name = "gptj",
     .hf_types = kGptJ,
     .configure = configure_gptj,
     .hf_names = gptj_names,
     .forward = parallel_forward,
     .hf_defaults = kGptJDefaults,
     .hf_aliases = kGptJAliases,
     .describe = describe_gptj,
     .wide_ffn = true},
    {.name = "codegen",
     .hf_types = kCodeGen,
     .configure = configure_codegen,
     .hf_names = codegen_names,
     .forward = parallel_forward,
     .hf_defaults = kGptJDefaults,
     .hf_aliases = kGptJAliases,
     .describe = describe_gptj,
     .wide_ffn = true,
     .hf_qkv_by_group = true},
    {.name = "gptneo",
     .hf_types = kGptNeo,
     .configure = configure_gpt_neo,
     .hf_names = gpt_neo_names,
     .forward = decoder_forward,
     .hf_defaults = kGptNeoDefaults,
     .hf_aliases = kGptNeoAliases,
     .describe = describe_gpt_neo,
     .wide_ffn = true},
    {.name = "persimmon",
     .hf_types = kPersimmon,
     .configure = configure_persimmon,
     .hf_names = persimmon_names,
     .forward = decoder_forward,
     .hf_defaults = kPersimmonDefaults,
     .describe = describe_persimmon,
     .partial_rope = true,
     .hf_qkv_by_group = true},
    {.name = "biogpt",
     .hf_types = kBioGpt,
     .configure = configure_biogpt,
     .hf_names = biogpt_names,
     .forward = decoder_forward,
     .hf_defaults = kBioGptDefaults,
     .describe = describe_biogpt},
    {.name = "xglm",
     .hf_types = kXglm,
     .configure = configure_xglm,
     .hf_names = xglm_names,
     .forward = decoder_forward,
     .hf_defaults = kXglmDefaults,
     .hf_aliases = kXglmAliases,
     .describe = describe_biogpt},
    {.name = "opt",
     .hf_types = kOpt,
     .configure = configure_opt,
     .hf_names = opt_names,
     .forward = decoder_forward,
     .hf_defaults = kOptDefaults,
     .hf_aliases = kOptAliases,
     .describe = describe_opt},
    {.name = "olmo",
     .hf_types = kOlmo,
     .configure = configure_olmo,
     .forward = decoder_forward,
     .describe = describe_olmo,
     .gguf_pairs = true},
};

}  // namespace

std::span<const Architecture> classic_architectures() { return kClassics; }

}  // namespace penstock
