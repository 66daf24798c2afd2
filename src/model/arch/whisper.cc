// Whisper's decoder: learned positions, layer norms with biases, cross-attention behind attention. Its
// encoder is a tower (towers/whisper_towers.cc).
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/blocks/cross_attention.h"

namespace penstock {

namespace {

// num_hidden_layers of config.json counts the encoder's layers.
void whisper_usual(nlohmann::json& object) {
  for (const auto& [own, usual] :
       {std::pair{"d_model", "hidden_size"}, std::pair{"decoder_layers", "num_hidden_layers"},
        std::pair{"decoder_attention_heads", "num_attention_heads"},
        std::pair{"decoder_ffn_dim", "intermediate_size"},
        std::pair{"max_target_positions", "max_position_embeddings"}}) {
    object.erase(usual);
    if (object.contains(own)) object[usual] = object[own];
  }
}

void configure_whisper(ConfigReader& reader, ModelConfig& config) {
  config.norm.layer_norm = true, config.norm.eps = 1e-5f;
  config.positions.learned = true;
  config.ffn.gated = false;
  config.n_kv_heads = config.n_heads;
  drop_ropes(config);
  if (config.model_dim != config.n_heads * config.head_dim) {
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("d_model: expected a multiple of {} heads, got {}",
                                   config.n_heads, config.model_dim));
  }
  if (reader.flag({"", "scale_embedding"}, false))
    config.embedding.scale = std::sqrt(static_cast<float>(config.model_dim));
  config.encoder_rows = reader.integer({"", "max_source_positions"}, 1, 1 << 16, 1500);
  const auto mixer = cross_attention(config.encoder_rows);
  for (LayerConfig& layer : config.layers) layer.mixer = mixer;
}

void whisper_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"model.decoder.", "decoder."};
  names.positions = "embed_positions", names.final_norm = "layer_norm", names.lm_head = "proj_out";
  names[tensor::kAttnNorm] = "self_attn_layer_norm", names[tensor::kO] = "self_attn.out_proj";
  names[tensor::kFfnNorm] = "final_layer_norm", names[tensor::kUp] = "fc1",
  names[tensor::kDown] = "fc2";
}

}  // namespace

extern constinit const Architecture kWhisper = {
    .name = "whisper",
    .title = "Whisper",
    .hf_types = {"whisper", "WhisperForConditionalGeneration"},
    .directories_only = true,
    .configure = configure_whisper,
    .hf_names = whisper_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "activation_function": "gelu", "hidden_size": 384,
    "num_hidden_layers": 4, "num_attention_heads": 6, "intermediate_size": 1536,
    "max_position_embeddings": 448, "vocab_size": 51865})",
    .hf_usual = whisper_usual,
};

}  // namespace penstock
