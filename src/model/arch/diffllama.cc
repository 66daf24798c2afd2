// DiffLlama: Llama with differential attention.
#include <cmath>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_diffllama(ConfigReader& reader, ModelConfig& config) {
  if (config.n_heads % 2 != 0 || config.n_kv_heads % 2 != 0)
    return reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format(
            "num_attention_heads, num_key_value_heads: expected even numbers, got {} and {}",
            config.n_heads, config.n_kv_heads));
  config.attention.differential = true;
  config.attention.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  config.head_dim *= 2;
}

}  // namespace

extern constinit const Architecture kDiffLlama = {
    .name = "diffllama",
    .title = "DiffLlama",
    .hf_types = {"diffllama", "DiffLlamaForCausalLM"},
    .directories_only = true,
    .configure = configure_diffllama,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5})",
};

}  // namespace penstock
