// Hunyuan dense: every head of q and k is rotated, then normed.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

void configure_hunyuan(ConfigReader& reader, ModelConfig& config) {
  config.qk_norm = QkNorm::kHead;
  config.rope_before_norm = true;
  const nlohmann::json* rope = reader.find({"", "rope_parameters"});
  if (rope == nullptr) rope = reader.find({"", "rope_scaling"});
  if (rope == nullptr) return;
  ConfigReader inner(*rope, Naming::kHuggingFace, "", reader.where() + ": rope_parameters");
  const std::string type = inner.text({"", "rope_type"}, inner.text({"", "type"}, "default"));
  // "dynamic" with alpha is a larger theta at every length.
  const float alpha = inner.number({"", "alpha"}, 0.0f, 1e6f, 0.0f);
  const float dim = static_cast<float>(config.ropes[0].rotary_dim);
  if (type == "dynamic" && alpha > 0 && dim > 2) config.ropes[0].theta *= std::pow(alpha, dim / (dim - 2));
  reader.merge(inner);
}

void describe_hunyuan(ConfigWriter& writer, const ModelConfig&) {
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

void hunyuan_names(NameTable& names, const ModelConfig&) {
  names.q_norm = "self_attn.query_layernorm", names.k_norm = "self_attn.key_layernorm";
}

}  // namespace penstock
