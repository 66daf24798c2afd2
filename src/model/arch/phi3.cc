// Phi-3, 3.5 and 4: fused projections (detected by their tensors), sliding window, longrope.
#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_phi3(ConfigReader& reader, ModelConfig& config) { read_windows(reader, config, 0); }

}  // namespace

extern constinit const Architecture kPhi3 = {
    .name = "phi3",
    .title = "Phi-3, 3.5, 4",
    .hf_types = {"phi3", "Phi3ForCausalLM"},
    .configure = configure_phi3,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5})",
    .partial_rope = true,
};

}  // namespace penstock
