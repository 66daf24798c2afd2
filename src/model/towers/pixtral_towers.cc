// Pixtral: RMS norms, gated feed-forwards, rotation by rows in even frequencies and by columns in
// odd ones; Mistral 3 merges 2 x 2 patches.
#include <cmath>

#include "model/towers/families.h"

namespace penstock {

void read_pixtral(TowerReader& reader, TowerConfig& config) {
  ConfigReader& vision = reader.vision();
  const int dim = vision.integer({"", "hidden_size"}, 1, 1 << 16, 1024),
            n_heads = vision.integer({"", "num_attention_heads"}, 1, 1 << 10, 16);
  if (dim % (4 * n_heads) != 0 ||
      vision.integer({"", "head_dim"}, 1, 1 << 12, dim / n_heads) != dim / n_heads)
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "hidden_size: expected a multiple of 4 x {} heads of hidden_size / heads, got {}",
            n_heads, dim));
  set_tower_layers(config, vision.integer({"", "num_hidden_layers"}, 1, 1 << 10, 24), dim, n_heads,
                   vision.integer({"", "intermediate_size"}, 1, 1 << 20, 4096));
  config.layers.norm = {.eps = 1e-5f};
  set_tower_activation(config, reader.activation({"", "hidden_act"}, "gelu"), true);
  expect_colours(reader, "num_channels");
  config.patch_size = reader.side({"", "patch_size"}, 16);
  config.patch_dim = 3 * config.patch_size * config.patch_size;
  reader.side({"", "image_size"}, 1024);  // bound of the processor
  const float theta = read_axial_theta(reader);
  TowerRope& rope = config.ropes.emplace_back();
  for (const int odd : {0, 1}) {
    for (int i = odd; i < config.layers.head_dim / 2; i += 2) {
      rope.frequencies.push_back(std::pow(
          theta, -2.0f * static_cast<float>(i) / static_cast<float>(config.layers.head_dim)));
      rope.axes.push_back(static_cast<uint8_t>(1 + odd));
    }
  }
  config.prefix = reader.prefix({"vision_tower.", "model.vision_tower."}, "patch_conv.weight");
  config.patch_name = config.prefix + "patch_conv";
  config.pre_norm = config.prefix + "ln_pre", config.pre_norm_config = config.layers.norm;
  config.roots.push_back(config.prefix);
  NameTable& names = config.names;
  names.layer = "transformer.layers.{}.";
  names[tensor::kAttnNorm] = "attention_norm", names[tensor::kFfnNorm] = "ffn_norm";
  names[tensor::kQ] = "attention.q_proj", names[tensor::kK] = "attention.k_proj";
  names[tensor::kV] = "attention.v_proj", names[tensor::kO] = "attention.o_proj";
  names[tensor::kGate] = "feed_forward.gate_proj", names[tensor::kUp] = "feed_forward.up_proj";
  names[tensor::kDown] = "feed_forward.down_proj";
}

namespace {

void configure_mistral3_tower(TowerReader& reader, TowerConfig& config) {
  if (const std::string type = reader.vision_type(); type != "pixtral")
    return reader.fail(ErrorCode::kUnsupported,
                       fmt::format("model_type: expected pixtral, got '{}'", type));
  read_pixtral(reader, config);
  cut_to_feature_layer(reader, config, -1);
  config.unit = reader.whole().integer({"", "spatial_merge_size"}, 1, 16, 2);
  const std::string at = reader.prefix({"multi_modal_projector.", "model.multi_modal_projector."},
                                       "patch_merger.merging_layer.weight");
  NormConfig norm = config.layers.norm;
  norm.eps = 1e-6f;
  if (const nlohmann::json* text = reader.whole().find({"", "text_config"});
      text != nullptr && text->is_object()) {
    ConfigReader inner(*text, Naming::kHuggingFace, "", reader.whole().where() + ": text_config");
    norm.eps = inner.number({"", "rms_norm_eps"}, 0, 1, 1e-6f);
    if (!inner.status()) reader.fail(inner.status().error().code, inner.status().error().message);
  }
  ProjectorStage merge = linear_stage(at + "patch_merger.merging_layer", config.model_dim());
  merge.by_channel = true;
  config.projector = {norm_stage(at + "norm", norm), join_stage(), merge};
  add_two_linear(reader, config);
}

}  // namespace

extern const TowerFamily kMistral3Tower = {
    .name = "mistral3",
    .title = "Mistral 3, Ministral 3",
    .hf_types = {"mistral3"},
    .configure = configure_mistral3_tower,
};

}  // namespace penstock
