// THE list of decoders with scans of Mamba 2.
#include "model/arch/archs.h"
#include "model/arch/hf_defaults.h"

namespace penstock {

// In granite_hybrid.cc, mamba2.cc and falcon_h1.cc.
void configure_granite_hybrid(ConfigReader&, ModelConfig&);
void configure_bamba(ConfigReader&, ModelConfig&);
void configure_mamba2(ConfigReader&, ModelConfig&);
void configure_nemotron_h(ConfigReader&, ModelConfig&);
void configure_falcon_h1(ConfigReader&, ModelConfig&);
void granite_gguf_names(NameTable&, const ModelConfig&);
void granite_hybrid_names(NameTable&, const ModelConfig&);
void bamba_names(NameTable&, const ModelConfig&);
void mamba2_names(NameTable&, const ModelConfig&);
void nemotron_h_names(NameTable&, const ModelConfig&);
void falcon_h1_gguf_names(NameTable&, const ModelConfig&);
void describe_granite_hybrid(ConfigWriter&, const ModelConfig&);
void describe_mamba2(ConfigWriter&, const ModelConfig&);
void describe_nemotron_h(ConfigWriter&, const ModelConfig&);
void describe_falcon_h1(ConfigWriter&, const ModelConfig&);

namespace {

constexpr std::string_view kGraniteHybrid[] = {"granitemoehybrid", "GraniteMoeHybridForCausalLM"};
constexpr std::string_view kBamba[] = {"bamba", "BambaForCausalLM"};
constexpr std::string_view kMamba2[] = {"mamba2", "Mamba2ForCausalLM"};
constexpr std::string_view kNemotronH[] = {"nemotron_h", "NemotronHForCausalLM"};
constexpr std::string_view kFalconH1[] = {"falcon_h1", "FalconH1ForCausalLM"};

constexpr Architecture kScans[] = {
    {.name = "granitehybrid",
     .hf_types = kGraniteHybrid,
     .configure = configure_granite_hybrid,
     .hf_names = granite_hybrid_names,
     .forward = decoder_forward,
     .describe = describe_granite_hybrid,
     .gguf_names = granite_gguf_names,
     .gguf_pairs = true},
    {.name = "bamba",
     .hf_types = kBamba,
     .configure = configure_bamba,
     .hf_names = bamba_names,
     .forward = decoder_forward,
     .hf_defaults = kBambaDefaults,
     .describe = describe_granite_hybrid,
     .partial_rope = true,
     .gguf_pairs = true},
    {.name = "mamba2",
     .hf_types = kMamba2,
     .configure = configure_mamba2,
     .hf_names = mamba2_names,
     .forward = one_mixer_forward,
     .hf_defaults = kMamba2Defaults,
     .hf_aliases = kMamba2Aliases,
     .describe = describe_mamba2},
    {.name = "nemotron_h",
     .hf_types = kNemotronH,
     .configure = configure_nemotron_h,
     .hf_names = nemotron_h_names,
     .forward = one_mixer_forward,
     .hf_defaults = kNemotronHDefaults,
     .hf_aliases = kNemotronHAliases,
     .describe = describe_nemotron_h},
    // What GGUF calls it with experts; config.json files are read by the row before.
    {.name = "nemotron_h_moe",
     .hf_types = kNemotronH,
     .configure = configure_nemotron_h,
     .hf_names = nemotron_h_names,
     .forward = one_mixer_forward,
     .hf_aliases = kNemotronHAliases,
     .describe = describe_nemotron_h},
    {.name = "falcon-h1",
     .hf_types = kFalconH1,
     .configure = configure_falcon_h1,
     .hf_names = bamba_names,
     .forward = decoder_forward,
     .hf_defaults = kFalconH1Defaults,
     .describe = describe_falcon_h1,
     .gguf_names = falcon_h1_gguf_names,
     .gguf_multiplied = true},
};

}  // namespace

std::span<const Architecture> scan_architectures() { return kScans; }

}  // namespace penstock
