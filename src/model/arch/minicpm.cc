// MiniCPM: Llama whose embeddings, sub-layers and logits are multiplied.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

// llama.cpp knows only the first model's factors for files that have none.
void read_minicpm_factors(ConfigReader& reader, ModelConfig& config) {
  const float layers = static_cast<float>(config.n_layers),
              dim = static_cast<float>(config.model_dim);
  config.embedding.scale = reader.number({"embedding_scale", "scale_emb"}, -1e6f, 1e6f, 12.0f);
  config.residual.scale =
      reader.gguf()
          ? reader.number({"residual_scale", ""}, -1e6f, 1e6f, 1.4f / std::sqrt(layers))
          : reader.number({"", "scale_depth"}, -1e6f, 1e6f, std::sqrt(layers)) / std::sqrt(layers);
  config.output.scale = reader.gguf()
                            ? 1.0f / reader.number({"logit_scale", ""}, 1e-6f, 1e6f, dim / 256.0f)
                            : reader.number({"", "dim_model_base"}, 1e-6f, 1e6f, dim) / dim;
}

void describe_minicpm_factors(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"embedding_scale", "scale_emb"}, config.embedding.scale);
  writer.set({"residual_scale", ""}, config.residual.scale);
  writer.set({"logit_scale", ""}, 1.0f / config.output.scale);
  writer.set({"", "scale_depth"},
             config.residual.scale * std::sqrt(static_cast<float>(config.n_layers)));
  writer.set({"", "dim_model_base"},
             std::lround(config.output.scale * static_cast<float>(config.model_dim)));
}

namespace {

// Beyond sparse_config's dense_len, attention is sparse; such lengths are not offered.
void configure_minicpm(ConfigReader& reader, ModelConfig& config) {
  set_rope_pairs(reader, config);
  read_minicpm_factors(reader, config);
  const nlohmann::json* sparse = reader.find({"", "sparse_config"});
  if (sparse == nullptr) return;
  ConfigReader inner(*sparse, Naming::kHuggingFace, "", reader.where() + ": sparse_config");
  config.max_seq_len =
      std::min(config.max_seq_len, inner.integer({"", "dense_len"}, 1, kMaxContextLength, 8192));
  reader.merge(inner);
}

}  // namespace

extern constinit const Architecture kMiniCpm = {
    .name = "minicpm",
    .title = "MiniCPM 1, 2, 4",
    .hf_types = {"minicpm", "MiniCPMForCausalLM"},
    .configure = configure_minicpm,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": true, "scale_emb": 1, "scale_depth": 1,
    "dim_model_base": 1})",
    .describe = describe_minicpm_factors,
    .gguf_pairs = true,
};

}  // namespace penstock
