// InternVL: a class token, sub-layers whose outputs are scaled by vectors, units joined and normed.
#include <cmath>

#include "model/towers/families.h"

namespace penstock {

namespace {

void configure_internvl_tower(TowerReader& reader, TowerConfig& config) {
  ConfigReader& vision = reader.vision();
  const int dim = vision.integer({"", "hidden_size"}, 1, 1 << 16),
            n_heads = vision.integer({"", "num_attention_heads"}, 1, 1 << 10);
  if (dim % n_heads != 0)
    return reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("hidden_size: expected a multiple of {} heads, got {}", n_heads, dim));
  set_tower_layers(config, vision.integer({"", "num_hidden_layers"}, 1, 1 << 10), dim, n_heads,
                   vision.integer({"", "intermediate_size"}, 1, 1 << 20));
  const std::string norm = vision.text({"", "norm_type"}, "layer_norm");
  if (norm != "layer_norm" && norm != "rms_norm")
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("norm_type: expected layer_norm or rms_norm, got '{}'", norm));
  config.layers.norm = {.eps = vision.number({"", "layer_norm_eps"}, 0, 1),
                        .layer_norm = norm == "layer_norm"};
  if (vision.flag({"", "use_qk_norm"}, false)) config.layers.attention.qk_norm = QkNorm::kRow;
  vision.flag({"", "attention_bias"}, false);  // biases are read if they are there
  config.layers.residual.column_scales = true;
  vision.number({"", "layer_scale_init_value"}, -1e6f, 1e6f, 0.1f);
  set_tower_activation(config, reader.activation({"", "hidden_act"}, "gelu"), false);
  expect_colours(reader, "num_channels");
  config.patch_size = reader.side({"", "patch_size"});
  config.patch_dim = 3 * config.patch_size * config.patch_size;
  const int side = reader.side({"", "image_size"}) / config.patch_size;
  config.prefix = reader.prefix({"vision_tower.", "model.vision_tower."}, "embeddings.cls_token");
  const std::string at = config.prefix + "embeddings.";
  config.patch_name = at + "patch_embeddings.projection";
  config.class_name = at + "cls_token";
  config.unused = {at + "mask_token"};
  if (vision.flag({"", "use_absolute_position_embeddings"}, true)) {
    config.positions = {.kind = TowerPositions::Kind::kFixed,
                        .name = at + "position_embeddings",
                        .rows = side,
                        .cols = side,
                        .has_class = true};
  }
  config.roots.push_back(config.prefix);
  NameTable& names = config.names;
  names.layer = "encoder.layer.{}.";
  names[tensor::kAttnNorm] = "layernorm_before", names[tensor::kFfnNorm] = "layernorm_after";
  names[tensor::kQ] = "attention.q_proj", names[tensor::kK] = "attention.k_proj";
  names[tensor::kV] = "attention.v_proj", names[tensor::kO] = "attention.projection_layer";
  names[tensor::kQNorm] = "attention.q_norm", names[tensor::kKNorm] = "attention.k_norm";
  names[tensor::kUp] = "mlp.fc1", names[tensor::kDown] = "mlp.fc2";
  const int n_layers = config.layers.n_layers;
  cut_to_feature_layer(reader, config, -1);
  // The norm after all layers; models that average patches have none.
  const bool last = config.layers.n_layers == n_layers;
  if (!vision.flag({"", "use_mean_pooling"}, true)) {
    if (last)
      config.projector.push_back(norm_stage(config.prefix + "layernorm",
                                            {.eps = config.layers.norm.eps, .layer_norm = true}));
    if (!last) config.unused.push_back(config.prefix + "layernorm.");
  }
  const float ratio = reader.whole().number({"", "downsample_ratio"}, 0.01f, 1, 0.5f);
  config.unit = static_cast<int>(std::lround(1.0f / ratio));
  if (reader.whole().text({"", "vision_feature_select_strategy"}, "default") != "default")
    reader.fail(ErrorCode::kUnsupported, "vision_feature_select_strategy: expected default");
  config.projector.push_back(join_stage());
  const std::string projector = reader.prefix(
      {"multi_modal_projector.", "model.multi_modal_projector."}, "layer_norm.weight");
  config.projector.push_back(
      norm_stage(projector + "layer_norm", {.eps = 1e-5f, .layer_norm = true}));
  add_two_linear(reader, config);
}

}  // namespace

extern const TowerFamily kInternVlTower = {
    .name = "internvl",
    .title = "InternVL",
    .hf_types = {"internvl"},
    .configure = configure_internvl_tower,
    .hf_defaults = R"({"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
    "intermediate_size": 4096, "layer_norm_eps": 1e-6, "image_size": 448, "patch_size": 14})",
};

}  // namespace penstock
