// LLaVA's kind: the states of a CLIP, SigLIP or Pixtral tower after some layer, and two linear
// layers.
#include "model/towers/families.h"

namespace penstock {

namespace {

// CLIP: a class token, and a norm before the layers.
void read_clip(TowerReader& reader, TowerConfig& config) {
  std::string unused_norm;
  read_siglip(reader, config, unused_norm);
  if (!reader.vision().has({"", "layer_norm_eps"})) config.layers.norm.eps = 1e-5f;
  set_tower_activation(config, reader.activation({"", "hidden_act"}, "quick_gelu"), false);
  const std::string at = config.prefix + "embeddings.";
  config.class_name = at + "class_embedding";
  config.positions.has_class = true;
  config.pre_norm = config.prefix + "pre_layrnorm", config.pre_norm_config = config.layers.norm;
}

void read_backbone(TowerReader& reader, TowerConfig& config) {
  const std::string type = reader.vision_type();
  std::string unused_norm;
  if (type == "clip_vision_model") return read_clip(reader, config);
  if (type == "siglip_vision_model") return read_siglip(reader, config, unused_norm);
  if (type == "pixtral") return read_pixtral(reader, config);
  reader.fail(
      ErrorCode::kUnsupported,
      fmt::format(
          "model_type: expected clip_vision_model, siglip_vision_model or pixtral, got '{}'",
          type));
}

}  // namespace

void cut_to_feature_layer(TowerReader& reader, TowerConfig& config, int usual) {
  ConfigReader& whole = reader.whole();
  const nlohmann::json* value = whole.find({"", "vision_feature_layer"});
  if (value != nullptr && value->is_array() && value->size() != 1)
    return reader.fail(ErrorCode::kUnsupported,
                       "vision_feature_layer: the states of several layers together are not read");
  const std::vector<int> given = whole.integers({"", "vision_feature_layer"}, -1024, 1024);
  const int layer = given.empty() ? usual : given[0], n = config.layers.n_layers;
  const int end = layer < 0 ? n + 1 + layer : layer;
  if (end < 1 || end > n)
    return reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("vision_feature_layer: expected a layer of {}, got {}", n, layer));
  for (int i = end; i < n; ++i) {
    std::string name(config.names.layer);
    config.unused.push_back(config.prefix + name.replace(name.find("{}"), 2, std::to_string(i)));
  }
  config.layers.n_layers = end;
  config.layers.layers.resize(static_cast<size_t>(end));
}

ActivationFunction read_projector_activation(TowerReader& reader) {
  const std::string act = reader.whole().text({"", "projector_hidden_act"}, "gelu");
  if (act == "gelu") return Activation::kGelu;
  if (act == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (act == "silu") return Activation::kSilu;
  reader.fail(ErrorCode::kUnsupported,
              fmt::format("projector_hidden_act: expected gelu, got '{}'", act));
  return Activation::kGelu;
}

void add_two_linear(TowerReader& reader, TowerConfig& config) {
  const std::string at =
      reader.prefix({"multi_modal_projector.", "model.multi_modal_projector."}, "linear_1.weight");
  config.roots.push_back(at);
  const int hidden = reader.dimension(at + "linear_1.weight", 0);
  config.text_dim = reader.dimension(at + "linear_2.weight", 0);
  config.projector.push_back(linear_stage(at + "linear_1", hidden));
  config.projector.push_back(activation_stage(read_projector_activation(reader)));
  config.projector.push_back(linear_stage(at + "linear_2", config.text_dim));
}

namespace {

void configure_llava_tower(TowerReader& reader, TowerConfig& config) {
  read_backbone(reader, config);
  cut_to_feature_layer(reader, config, -2);
  // post_layernorm is not in the way of a layer's states.
  config.unused.push_back(config.prefix + "post_layernorm.");
  const std::string kept = reader.whole().text({"", "vision_feature_select_strategy"}, "default");
  if (kept != (config.class_name.empty() ? "full" : "default"))
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("vision_feature_select_strategy: expected {}, got '{}'",
                            config.class_name.empty() ? "full" : "default", kept));
  add_two_linear(reader, config);
}

void configure_llava_next_tower(TowerReader& reader, TowerConfig& config) {
  configure_llava_tower(reader, config);
  config.newline_name = reader.prefix(
      {"image_newline", "model.image_newline", "language_model.model.image_newline"}, "");
  config.roots.push_back(config.newline_name);
}

// vision_feature_layer is -1 and all patches are kept if the file says nothing.
void configure_onevision_tower(TowerReader& reader, TowerConfig& config) {
  read_backbone(reader, config);
  cut_to_feature_layer(reader, config, -1);
  config.unused.push_back(config.prefix + "post_layernorm.");
  if (reader.whole().text({"", "vision_feature_select_strategy"}, "full") != "full" ||
      !config.class_name.empty())
    reader.fail(ErrorCode::kUnsupported,
                "vision_feature_select_strategy: expected full and a tower without a class token");
  add_two_linear(reader, config);
  config.newline_name = reader.prefix({"image_newline", "model.image_newline"}, "");
  config.roots.push_back(config.newline_name);
}

}  // namespace

extern const TowerFamily kLlavaNextTower = {
    .name = "llavanext",
    .title = "LLaVA-NeXT (1.6)",
    .hf_types = {"llava_next"},
    .configure = configure_llava_next_tower,
    .hf_defaults = R"({"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 336, "patch_size": 14, "model_type": "clip_vision_model"})",
};

extern const TowerFamily kOneVisionTower = {
    .name = "llavaonevision",
    .title = "LLaVA-OneVision",
    .hf_types = {"llava_onevision"},
    .configure = configure_onevision_tower,
    .hf_defaults = R"({"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 26,
    "num_attention_heads": 16, "image_size": 384, "patch_size": 14, "model_type": "siglip_vision_model"})",
};

extern const TowerFamily kLlavaTower = {
    .name = "llava",
    .title = "LLaVA (CLIP, SigLIP or Pixtral)",
    .hf_types = {"llava"},
    .configure = configure_llava_tower,
    .hf_defaults = R"({"model_type": "clip_vision_model"})",
};

}  // namespace penstock
