// GLM-4V, 4.1V, 4.5V, 4.6V: RMS norms, gated feed-forwards, a learned grid that is interpolated, a
// convolution that joins units, a gated projector.
#include "model/towers/families.h"

namespace penstock {

namespace {

void configure_glm4v_tower(TowerReader& reader, TowerConfig& config) {
  ConfigReader& vision = reader.vision();
  const int dim = vision.integer({"", "hidden_size"}, 1, 1 << 16),
            n_heads = vision.integer({"", "num_heads"}, 1, 1 << 10),
            out = vision.integer({"", "out_hidden_size"}, 1, 1 << 20),
            wide = vision.integer({"", "intermediate_size"}, 1, 1 << 20);
  if (dim % (4 * n_heads) != 0)
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("hidden_size: expected a multiple of 4 x {} heads, got {}", n_heads, dim));
  // The layers' feed-forwards are as wide as the text model.
  set_tower_layers(config, vision.integer({"", "depth"}, 1, 1 << 10), dim, n_heads, out);
  const NormConfig norms{.eps = vision.number({"", "rms_norm_eps"}, 0, 1)};
  config.layers.norm = norms;
  const ActivationFunction act = reader.activation({"", "hidden_act"}, "silu");
  set_tower_activation(config, act, true);
  vision.flag({"", "attention_bias"}, false);  // biases are read if they are there
  config.ropes = {halves_rope(config.layers.head_dim, read_axial_theta(reader))};
  expect_colours(reader, "in_channels");
  config.patch_size = reader.side({"", "patch_size"});
  config.patch_frames = reader.side({"", "temporal_patch_size"});
  config.patch_dim = 3 * config.patch_frames * config.patch_size * config.patch_size;
  config.unit = vision.integer({"", "spatial_merge_size"}, 1, 16);
  config.patches_by_unit = config.grid_positions = true;
  config.prefix = reader.prefix({"model.visual.", "visual."}, "patch_embed.proj.weight");
  const std::string& at = config.prefix;
  config.patch_name = at + "patch_embed.proj";
  config.patch_norm = at + "post_conv_layernorm";
  config.roots.push_back(at);
  const int side = reader.side({"", "image_size"}) / config.patch_size;
  config.positions = {.kind = TowerPositions::Kind::kBicubic,
                      .name = at + "embeddings.position_embedding.weight",
                      .rows = side,
                      .cols = side};
  NameTable& names = config.names;
  names.layer = "blocks.{}.";
  names[tensor::kAttnNorm] = "norm1", names[tensor::kFfnNorm] = "norm2";
  names[tensor::kQkv] = "attn.qkv", names[tensor::kO] = "attn.proj";
  config.text_dim = out;
  ProjectorStage join = linear_stage(at + "downsample", out);
  join.by_channel = true;
  ProjectorStage gated{.kind = ProjectorStage::Kind::kGated,
                       .name = at + "merger.gate_proj",
                       .other = at + "merger.up_proj",
                       .outputs = wide,
                       .activation = act};
  config.projector = {
      norm_stage(at + "post_layernorm", norms),
      join_stage(),
      join,
      linear_stage(at + "merger.proj", out),
      norm_stage(at + "merger.post_projection_norm", {.eps = 1e-5f, .layer_norm = true}),
      activation_stage(Activation::kGelu),
      gated,
      linear_stage(at + "merger.down_proj", out)};
}

}  // namespace

extern const TowerFamily kGlm4vTower = {
    .name = "glm4v",
    .title = "GLM-4.1V, 4.5V, 4.6V",
    .hf_types = {"glm4v", "glm4v_moe", "glm46v"},
    .configure = configure_glm4v_tower,
    .hf_defaults = R"({"depth": 24, "hidden_size": 1536, "hidden_act": "silu", "num_heads": 12,
    "image_size": 336, "patch_size": 14, "rms_norm_eps": 1e-5, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "out_hidden_size": 4096, "intermediate_size": 13696})",
};

}  // namespace penstock
