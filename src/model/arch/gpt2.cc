// GPT-2: learned positions, layer norms with biases, one fused projection, a plain feed-forward.
#include "model/arch/archs.h"

namespace penstock {

void configure_gpt2(ConfigReader& reader, ModelConfig& config) {
  config.layer_norm = true;
  config.learned_positions = true;
  config.gated_ffn = false;
  drop_ropes(config);
  if (reader.gguf()) config.activation = Activation::kGeluTanh;
  if (!reader.flag({"", "scale_attn_weights"}, true)) config.attention_scale = 1.0f;
  if (!reader.flag({"", "scale_attn_by_inverse_layer_idx"}, false)) return;
  for (size_t i = 0; i < config.layers.size(); ++i)
    config.layers[i].score_factor = 1.0f / static_cast<float>(i + 1);
}

void gpt2_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"transformer.", ""};
  names.embedding = "wte";
  names.positions = "wpe";
  names.final_norm = "ln_f";
  names.layer = "h.{}.";
  names.attn_norm = "ln_1";
  names.qkv = "attn.c_attn";
  names.o = "attn.c_proj";
  names.ffn_norm = "ln_2";
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  names.transposed = true;
}

}  // namespace penstock
