// Families with a SigLIP tower whose units are joined: LFM2-VL (SigLIP 2), Aya Vision, Cohere 2
// Vision (gated by the second half).
#include "model/towers/families.h"

namespace penstock {

namespace {

std::string projector_prefix(TowerReader& reader, TowerConfig& config) {
  const std::string at =
      reader.prefix({"multi_modal_projector.", "model.multi_modal_projector."}, "linear_1.weight");
  config.roots.push_back(at);
  return at;
}

void configure_lfm2_vl_tower(TowerReader& reader, TowerConfig& config) {
  std::string post_norm;
  read_siglip(reader, config, post_norm);
  ConfigReader& whole = reader.whole();
  config.unit = whole.integer({"", "downsample_factor"}, 1, 16, 2);
  config.projector = {norm_stage(post_norm, config.layers.norm), join_stage()};
  const std::string at =
      reader.prefix({"multi_modal_projector.", "model.multi_modal_projector."}, "linear_1.weight");
  if (whole.flag({"", "projector_use_layernorm"}, true))
    config.projector.push_back(norm_stage(at + "layer_norm", {.eps = 1e-5f, .layer_norm = true}));
  const int layer = whole.integer({"", "vision_feature_layer"}, -1024, 1024, -1);
  if (layer != -1)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("vision_feature_layer: expected -1, got {}", layer));
  add_two_linear(reader, config);
}

// linear_1, first half * silu(second half), linear_2.
void add_halves(TowerReader& reader, TowerConfig& config, const std::string& at) {
  const int hidden = reader.dimension(at + "linear_1.weight", 0);
  config.text_dim = reader.dimension(at + "linear_2.weight", 0);
  ProjectorStage halves{.kind = ProjectorStage::Kind::kHalves, .activation = Activation::kSilu};
  config.projector.push_back(linear_stage(at + "linear_1", hidden));
  config.projector.push_back(halves);
  config.projector.push_back(linear_stage(at + "linear_2", config.text_dim));
}

void configure_aya_tower(TowerReader& reader, TowerConfig& config) {
  std::string post_norm;
  read_siglip(reader, config, post_norm);
  cut_to_feature_layer(reader, config, -1);
  config.unused.push_back(post_norm);
  ConfigReader& whole = reader.whole();
  if (whole.text({"", "vision_feature_select_strategy"}, "full") != "full")
    reader.fail(ErrorCode::kUnsupported, "vision_feature_select_strategy: expected full");
  config.unit = whole.integer({"", "downsample_factor"}, 1, 16, 2);
  const float eps = whole.number({"", "adapter_layer_norm_eps"}, 0, 1, 1e-6f);
  const std::string at = projector_prefix(reader, config);
  config.projector = {join_stage(), norm_stage(at + "layernorm", {.eps = eps, .layer_norm = true})};
  add_halves(reader, config, at);
}

void configure_cohere2_tower(TowerReader& reader, TowerConfig& config) {
  std::string post_norm;
  read_siglip(reader, config, post_norm);
  config.unit = reader.whole().integer({"", "downsample_factor"}, 1, 16, 2);
  config.projector = {norm_stage(post_norm, config.layers.norm), join_stage()};
  add_halves(reader, config, projector_prefix(reader, config));
}

}  // namespace

extern const TowerFamily kLfm2VlTower = {
    .name = "lfm2vl",
    .title = "LFM2-VL",
    .hf_types = {"lfm2_vl"},
    .configure = configure_lfm2_vl_tower,
    .hf_defaults = R"({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "patch_size": 16, "num_patches": 256, "layer_norm_eps": 1e-6})",
};

extern const TowerFamily kAyaTower = {
    .name = "aya",
    .title = "Aya Vision",
    .hf_types = {"aya_vision"},
    .configure = configure_aya_tower,
    .hf_defaults = R"({"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 26,
    "num_attention_heads": 14, "image_size": 384, "patch_size": 14, "layer_norm_eps": 1e-6})",
};

extern const TowerFamily kCohere2Tower = {
    .name = "cohere2vision",
    .title = "Cohere 2 Vision (Command A Vision)",
    .hf_types = {"cohere2_vision"},
    .configure = configure_cohere2_tower,
    .hf_defaults = R"({"hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 27,
    "num_attention_heads": 12, "image_size": 512, "patch_size": 16, "layer_norm_eps": 1e-6})",
};

}  // namespace penstock
