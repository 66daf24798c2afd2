// Llama 4: the class token is the last row and is not rotated; pairs of the first half of a head turn
// by columns, those of the second by rows, counted from 1.
#include <cmath>

#include "model/towers/families.h"

namespace penstock {

namespace {

void configure_llama4_tower(TowerReader& reader, TowerConfig& config) {
  ConfigReader& vision = reader.vision();
  const int dim = vision.integer({"", "hidden_size"}, 1, 1 << 16),
            n_heads = vision.integer({"", "num_attention_heads"}, 1, 1 << 10);
  if (dim % (4 * n_heads) != 0)
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("hidden_size: expected a multiple of 4 x {} heads, got {}", n_heads, dim));
  set_tower_layers(config, vision.integer({"", "num_hidden_layers"}, 1, 1 << 10), dim, n_heads,
                   vision.integer({"", "intermediate_size"}, 1, 1 << 20));
  vision.number({"", "norm_eps"}, 0, 1, 1e-5f);  // the norms have PyTorch's epsilon
  vision.text({"", "hidden_act"}, "gelu");       // and the layers GELU
  config.layers.norm = {.eps = 1e-5f, .layer_norm = true};
  set_tower_activation(config, Activation::kGelu, false);
  expect_colours(reader, "num_channels");
  config.patch_size = reader.side({"", "patch_size"});
  config.patch_dim = 3 * config.patch_size * config.patch_size;
  const int side = reader.side({"", "image_size"}) / config.patch_size;
  const float theta = read_axial_theta(reader);
  TowerRope& rope = config.ropes.emplace_back();
  const int quarter = config.layers.head_dim / 4;
  for (const uint8_t axis : {2, 1}) {
    for (int i = 0; i < quarter; ++i) {
      rope.frequencies.push_back(
          std::pow(theta, -static_cast<float>(i) / static_cast<float>(quarter)));
      rope.axes.push_back(axis);
    }
  }
  rope.interleaved = true, rope.first_position = 1;
  config.prefix =
      reader.prefix({"vision_model.", "model.vision_model."}, "patch_embedding.linear.weight");
  const std::string& at = config.prefix;
  config.patch_name = at + "patch_embedding.linear";
  config.class_name = at + "class_embedding";
  config.positions = {.kind = TowerPositions::Kind::kFixed,
                      .name = at + "positional_embedding_vlm",
                      .rows = side,
                      .cols = side,
                      .has_class = true,
                      .class_first = false};
  config.pre_norm = at + "layernorm_pre", config.pre_norm_config = config.layers.norm;
  config.roots.push_back(at);
  NameTable& names = config.names;
  names.layer = "model.layers.{}.";
  names[tensor::kAttnNorm] = "input_layernorm",
  names[tensor::kFfnNorm] = "post_attention_layernorm";
  names[tensor::kUp] = "mlp.fc1", names[tensor::kDown] = "mlp.fc2";
  const int layer = vision.integer({"", "vision_feature_layer"}, -1024, 1024, -1);
  if (layer != -1 || vision.text({"", "vision_feature_select_strategy"}, "default") != "default")
    reader.fail(ErrorCode::kUnsupported,
                "vision_feature_layer, vision_feature_select_strategy: expected -1 and default");
  vision.flag({"", "multi_modal_projector_bias"}, false);
  vision.number({"", "projector_dropout"}, 0, 1, 0);
  const float ratio = vision.number({"", "pixel_shuffle_ratio"}, 0.01f, 1, 0.5f);
  config.unit = static_cast<int>(std::lround(1.0f / ratio));
  const int hidden = vision.integer({"", "projector_input_dim"}, 1, 1 << 20),
            out = vision.integer({"", "projector_output_dim"}, 1, 1 << 20);
  vision.integer({"", "vision_output_dim"}, 1, 1 << 20, out);
  const std::string projector =
      reader.prefix({"multi_modal_projector.", "model.multi_modal_projector."}, "linear_1.weight");
  config.roots.push_back(projector);
  config.text_dim = reader.dimension(projector + "linear_1.weight", 0);
  const std::string adapter = at + "vision_adapter.mlp.";
  config.projector = {norm_stage(at + "layernorm_post", config.layers.norm),
                      join_stage(),
                      linear_stage(adapter + "fc1", hidden),
                      activation_stage(Activation::kGelu),
                      linear_stage(adapter + "fc2", out),
                      activation_stage(Activation::kGelu),
                      linear_stage(projector + "linear_1", config.text_dim)};
}

}  // namespace

extern const TowerFamily kLlama4Tower = {
    .name = "llama4",
    .title = "Llama 4",
    .hf_types = {"llama4"},
    .configure = configure_llama4_tower,
    .hf_defaults = R"({"hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34,
    "num_attention_heads": 16, "image_size": 448, "patch_size": 14, "projector_input_dim": 4096,
    "projector_output_dim": 4096})",
};

}  // namespace penstock
