// Llama 1 to 3.2 and what is computed the same way: Mistral, Mixtral, Granite.
#include "model/arch/archs.h"

namespace penstock {

void configure_llama(ConfigReader& reader, ModelConfig& config) {
  config.rope_interleaved = reader.gguf();  // GGUF files hold q and k with adjacent pairs
  if (reader.gguf()) {
    read_windows(reader, config, 0);                                                         // Mistral
    if (reader.integer({"expert_count", ""}, 0, 4096, 0) > 0) read_experts(reader, config);  // Mixtral
  }
}

void configure_mistral(ConfigReader& reader, ModelConfig& config) {
  configure_llama(reader, config);
  read_windows(reader, config, 0);
}

void configure_mixtral(ConfigReader& reader, ModelConfig& config) {
  configure_mistral(reader, config);
  read_experts(reader, config);
}

void mixtral_names(NameTable& names) {
  names.router = "block_sparse_moe.gate";
  names.expert_gate = "block_sparse_moe.experts.{}.w1";
  names.expert_up = "block_sparse_moe.experts.{}.w3";
  names.expert_down = "block_sparse_moe.experts.{}.w2";
}

void configure_granite(ConfigReader& reader, ModelConfig& config) {
  config.rope_interleaved = reader.gguf();
  config.embedding_scale = reader.number({"embedding_scale", "embedding_multiplier"}, -1e6f, 1e6f, 1.0f);
  config.residual_scale = reader.number({"residual_scale", "residual_multiplier"}, -1e6f, 1e6f, 1.0f);
  config.attention_scale = reader.number({"attention.scale", "attention_multiplier"}, -1e6f, 1e6f, 1.0f);
  config.logit_scale = 1.0f / reader.number({"logit_scale", "logits_scaling"}, 1e-6f, 1e6f, 1.0f);
}

}  // namespace penstock
