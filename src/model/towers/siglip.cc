// SigLIP: learned positions, layer norms, no class token.
#include "model/towers/families.h"

#include <cmath>

namespace penstock {

void name_siglip_tensors(TowerConfig& config) {
  NameTable& names = config.names;
  names.layer = "encoder.layers.{}.";
  names[tensor::kAttnNorm] = "layer_norm1", names[tensor::kFfnNorm] = "layer_norm2";
  names[tensor::kO] = "self_attn.out_proj";
  names[tensor::kUp] = "mlp.fc1", names[tensor::kDown] = "mlp.fc2";
}

void read_siglip(TowerReader& reader, TowerConfig& config, std::string& post_norm) {
  ConfigReader& vision = reader.vision();
  const int dim = vision.integer({"", "hidden_size"}, 1, 1 << 16),
            n_heads = vision.integer({"", "num_attention_heads"}, 1, 1 << 10);
  if (dim % n_heads != 0)
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("hidden_size: expected a multiple of {} heads, got {}", n_heads, dim));
  set_tower_layers(config, vision.integer({"", "num_hidden_layers"}, 1, 1 << 10), dim, n_heads,
                   vision.integer({"", "intermediate_size"}, 1, 1 << 20));
  config.layers.norm = {.eps = vision.number({"", "layer_norm_eps"}, 0, 1, 1e-6f),
                        .layer_norm = true};
  set_tower_activation(config, reader.activation({"", "hidden_act"}, "gelu_pytorch_tanh"), false);
  if (vision.integer({"", "num_channels"}, 1, 64, 3) != 3)
    reader.fail(ErrorCode::kUnsupported, "num_channels: expected 3");
  config.patch_size = reader.side({"", "patch_size"});
  config.patch_dim = 3 * config.patch_size * config.patch_size;
  TowerPositions& positions = config.positions;
  if (vision.has({"", "num_patches"})) {  // SigLIP 2
    const int n = vision.integer({"", "num_patches"}, 1, 1 << 20);
    positions.kind = TowerPositions::Kind::kAntialiased;
    positions.rows = positions.cols = static_cast<int>(std::lround(std::sqrt(n)));
    if (positions.rows * positions.cols != n)
      reader.fail(ErrorCode::kUnsupported,
                  fmt::format("num_patches: expected a square, got {}", n));
  } else {
    positions.kind = TowerPositions::Kind::kFixed;
    positions.rows = positions.cols = reader.side({"", "image_size"}) / config.patch_size;
  }
  name_siglip_tensors(config);
  config.prefix = reader.prefix(
      {"vision_tower.vision_model.", "model.vision_tower.vision_model.", "vision_tower.",
       "model.vision_tower.", "model.vision_model.", "vision_model."},
      "embeddings.patch_embedding.weight");
  config.patch_name = config.prefix + "embeddings.patch_embedding";
  positions.name = config.prefix + "embeddings.position_embedding.weight";
  post_norm = config.prefix + "post_layernorm";
  config.roots.push_back(config.prefix);
  config.unused = {config.prefix + "head.", config.prefix + "embeddings.position_ids"};
}

namespace {

void add_gemma3_projector(TowerReader& reader, TowerConfig& config, const std::string& post_norm) {
  NormConfig soft = config.layers.norm;
  soft.layer_norm = false, soft.offset = 1.0f;
  const std::string at = reader.prefix({"multi_modal_projector.", "model.multi_modal_projector."},
                                       "mm_input_projection_weight");
  const std::string norm = at + "mm_soft_emb_norm", matrix = at + "mm_input_projection_weight";
  config.roots.push_back(at);
  config.text_dim = reader.dimension(matrix, 1);
  ProjectorStage projection = linear_stage(matrix, config.text_dim);
  projection.transposed = true;
  config.projector = {norm_stage(post_norm, config.layers.norm), mean_stage(),
                      norm_stage(norm, soft), projection};
}

// Patches are averaged to a square of mm_tokens_per_image, normed and projected.
void configure_gemma3_tower(TowerReader& reader, TowerConfig& config) {
  std::string post_norm;
  read_siglip(reader, config, post_norm);
  const int tokens = reader.whole().integer({"", "mm_tokens_per_image"}, 1, 1 << 16, 256);
  const int side = static_cast<int>(std::lround(std::sqrt(tokens)));
  if (side * side != tokens || config.positions.rows % side != 0)
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("mm_tokens_per_image: expected the square of a divisor of {}, got {}",
                    config.positions.rows, tokens));
  config.unit = config.positions.rows / side;
  add_gemma3_projector(reader, config, post_norm);
}

}  // namespace

extern const TowerFamily kGemma3Tower = {
    .name = "gemma3",
    .title = "Gemma 3",
    .hf_types = {"gemma3"},
    .configure = configure_gemma3_tower,
    .hf_defaults = R"({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "image_size": 224, "patch_size": 16, "layer_norm_eps": 1e-6})",
};

}  // namespace penstock
