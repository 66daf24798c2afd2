// GLM-4: adjacent rotated pairs in half of a head, norms before and after each sub-layer.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

void configure_glm4(ConfigReader&, ModelConfig& config) {
  config.norms = NormPlacement::kBoth;
  config.rope_interleaved = true;
}

void describe_glm4(ConfigWriter& writer, const ModelConfig&) {
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

void glm4_names(NameTable& names, const ModelConfig&) {
  names.attn_post_norm = "post_self_attn_layernorm", names.ffn_norm = "post_attention_layernorm";
  names.ffn_post_norm = "post_mlp_layernorm";
}

}  // namespace penstock
