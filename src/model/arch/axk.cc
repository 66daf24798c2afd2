// A.X K1: DeepSeek V3 with a norm behind the experts, which released checkpoints choose without a
// bias.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_axk1(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  configure_glm4_moe_lite(reader, config);
  config.experts.normed = true;
  const int first = leading_dense_layers(config);
  config.experts.selection_bias =
      reader.has_tensor(fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", first));
}

void axk1_names(NameTable& names, const ModelConfig&) {
  names[tensor::kFfnPostNorm] = "post_mlp_layernorm";
}

}  // namespace

extern constinit const Architecture kAxk1 = {
    .name = "axk1",
    .title = "A.X K1",
    .hf_types = {"axk1", "AXK1ForCausalLM", "AXK1"},
    .directories_only = true,
    .configure = configure_axk1,
    .hf_names = axk1_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 192, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5, "n_group": 8,
    "topk_group": 4, "first_k_dense_replace": 1})",
    .partial_rope = true,
};

}  // namespace penstock
