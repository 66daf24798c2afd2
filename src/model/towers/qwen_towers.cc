// Qwen2-VL, Qwen2.5-VL (windows), Qwen3-VL and Qwen3.5 (a learned grid, DeepStack): rotation by row
// and column, patches of two frames, units of 2 x 2 patches that are merged.
#include <cmath>

#include "model/towers/families.h"

namespace penstock {

TowerRope halves_rope(int head_dim, float theta) {
  TowerRope rope;
  for (const uint8_t axis : {1, 2}) {
    for (int i = 0; i < head_dim / 4; ++i) {
      rope.frequencies.push_back(
          std::pow(theta, -4.0f * static_cast<float>(i) / static_cast<float>(head_dim)));
      rope.axes.push_back(axis);
    }
  }
  return rope;
}

float read_axial_theta(TowerReader& reader, float usual) {
  const nlohmann::json* parameters = reader.vision().find({"", "rope_parameters"});
  const float own = reader.vision().number({"", "rope_theta"}, 1, 1e9f, usual);
  if (parameters == nullptr) return own;
  ConfigReader inner(*parameters, Naming::kHuggingFace, "",
                     reader.vision().where() + ": rope_parameters");
  const std::string type = inner.text({"", "rope_type"}, "axial");
  if (type != "axial" && type != "default")
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("rope_parameters: rope_type: expected axial, got '{}'", type));
  const float theta = inner.number({"", "rope_theta"}, 1, 1e9f, own);
  if (!inner.status()) reader.fail(inner.status().error().code, inner.status().error().message);
  return theta;
}

void expect_colours(TowerReader& reader, std::string_view key) {
  if (reader.vision().integer({"", key}, 1, 64, 3) != 3)
    reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected 3", key));
}

namespace {

// What all of them have. dim_key: name of the width.
void read_qwen_tower(TowerReader& reader, TowerConfig& config, std::string_view dim_key) {
  ConfigReader& vision = reader.vision();
  const int dim = vision.integer({"", dim_key}, 1, 1 << 16),
            n_heads = vision.integer({"", "num_heads"}, 1, 1 << 10);
  const bool has_ratio = vision.has({"", "mlp_ratio"}) && !vision.has({"", "intermediate_size"});
  const int width =
      has_ratio
          ? static_cast<int>(static_cast<float>(dim) * vision.number({"", "mlp_ratio"}, 0.01f, 64))
          : vision.integer({"", "intermediate_size"}, 1, 1 << 20);
  if (dim % (4 * n_heads) != 0)
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: expected a multiple of 4 x {} heads, got {}", dim_key, n_heads, dim));
  set_tower_layers(config, vision.integer({"", "depth"}, 1, 1 << 10), dim, n_heads, width);
  config.layers.norm = {.eps = 1e-6f, .layer_norm = true};
  set_tower_activation(config, reader.activation({"", "hidden_act"}, ""), false);
  config.ropes = {halves_rope(config.layers.head_dim, read_axial_theta(reader))};
  expect_colours(reader, vision.has({"", "in_chans"}) ? "in_chans" : "in_channels");
  vision.has({"", "in_channels"});
  vision.has({"", "num_hidden_layers"});  // the text model's, in files saved again; depth counts
  config.patch_size = reader.side({"", "patch_size"});
  if (vision.integer({"", "spatial_patch_size"}, 1, 1 << 10, config.patch_size) !=
      config.patch_size)
    reader.fail(ErrorCode::kUnsupported, "spatial_patch_size: expected patch_size");
  config.patch_frames = reader.side({"", "temporal_patch_size"});
  config.patch_dim = 3 * config.patch_frames * config.patch_size * config.patch_size;
  config.unit = vision.integer({"", "spatial_merge_size"}, 1, 16);
  config.patches_by_unit = config.grid_positions = true;
  config.prefix =
      reader.prefix({"visual.", "model.visual.", "thinker.visual.", "thinker.model.visual."},
                    "patch_embed.proj.weight");
  config.patch_name = config.prefix + "patch_embed.proj";
  config.roots.push_back(config.prefix);
  NameTable& names = config.names;
  names.layer = "blocks.{}.";
  names[tensor::kAttnNorm] = "norm1", names[tensor::kFfnNorm] = "norm2";
  names[tensor::kQkv] = "attn.qkv", names[tensor::kO] = "attn.proj";
}

// norm, join, fc, gelu, fc. after: the norm follows the join.
std::vector<ProjectorStage> merger(const TowerConfig& config, const std::string& norm,
                                   const std::string& first, const std::string& second,
                                   bool after) {
  const int joined = config.model_dim() * config.unit * config.unit;
  NormConfig norms = config.layers.norm;
  norms.eps = 1e-6f;
  std::vector<ProjectorStage> stages = {
      norm_stage(norm, norms), join_stage(), linear_stage(first, joined),
      activation_stage(Activation::kGelu), linear_stage(second, config.text_dim)};
  if (after) std::swap(stages[0], stages[1]);
  return stages;
}

void configure_qwen2_vl_tower(TowerReader& reader, TowerConfig& config) {
  read_qwen_tower(reader, config, "embed_dim");
  config.names[tensor::kUp] = "mlp.fc1", config.names[tensor::kDown] = "mlp.fc2";
  const std::string at = config.prefix + "merger.";
  config.text_dim = reader.dimension(at + "mlp.2.weight", 0);
  // The width of the text model.
  reader.vision().integer({"", "hidden_size"}, 1, 1 << 20, config.text_dim);
  config.projector = merger(config, at + "ln_q", at + "mlp.0", at + "mlp.2", false);
}

void configure_qwen2_5_vl_tower(TowerReader& reader, TowerConfig& config) {
  read_qwen_tower(reader, config, "hidden_size");
  config.layers.norm.layer_norm = false;
  set_tower_activation(config, config.layers.ffn.activation, true);
  ConfigReader& vision = reader.vision();
  const int side = config.patch_size * config.unit;
  config.window = vision.integer({"", "window_size"}, 1, 1 << 16) / std::max(side, 1);
  if (config.window == 0)
    reader.fail(ErrorCode::kUnsupported, fmt::format("window_size: expected at least {}", side));
  config.whole.assign(config.layers.layers.size(), 0);
  for (const int layer : vision.integers({"", "fullatt_block_indexes"}, 0, 1 << 10))
    if (static_cast<size_t>(layer) < config.whole.size())
      config.whole[static_cast<size_t>(layer)] = 1;
  const std::string at = config.prefix + "merger.";
  config.text_dim = reader.dimension(at + "mlp.2.weight", 0);
  vision.integer({"", "out_hidden_size"}, 1, 1 << 20, config.text_dim);
  config.projector = merger(config, at + "ln_q", at + "mlp.0", at + "mlp.2", false);
}

void configure_qwen2_5_omni_eye(TowerReader& reader, TowerConfig& config) {
  configure_qwen2_5_vl_tower(reader, config);
  reader.vision().has({"", "embed_dim"});  // hidden_size counts
  NameTable& names = config.names;
  names[tensor::kQ] = "attn.q", names[tensor::kK] = "attn.k", names[tensor::kV] = "attn.v";
}

// Names of a merger's tensors, and of those of DeepStack.
struct MergerNames {
  const char *norm, *first, *second, *deep;
};

void read_qwen3_tower(TowerReader& reader, TowerConfig& config, const MergerNames& merger_names) {
  read_qwen_tower(reader, config, "hidden_size");
  config.names[tensor::kUp] = "mlp.linear_fc1", config.names[tensor::kDown] = "mlp.linear_fc2";
  ConfigReader& vision = reader.vision();
  TowerPositions& positions = config.positions;
  const int n = vision.integer({"", "num_position_embeddings"}, 1, 1 << 20);
  positions.kind = TowerPositions::Kind::kBilinear;
  positions.rows = positions.cols = static_cast<int>(std::lround(std::sqrt(n)));
  positions.name = config.prefix + "pos_embed.weight";
  if (positions.rows * positions.cols != n)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("num_position_embeddings: expected a square, got {}", n));
  const auto stages = [&](const std::string& at, bool after) {
    return merger(config, at + merger_names.norm, at + merger_names.first, at + merger_names.second,
                  after);
  };
  const std::string at = config.prefix + "merger.";
  config.text_dim = reader.dimension(at + merger_names.second + ".weight", 0);
  vision.integer({"", "out_hidden_size"}, 1, 1 << 20, config.text_dim);
  config.projector = stages(at, false);
  const std::vector<int> layers = vision.integers({"", "deepstack_visual_indexes"}, 0, 1 << 10);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] >= config.layers.n_layers || (i > 0 && layers[i] <= layers[i - 1]))
      return reader.fail(ErrorCode::kUnsupported,
                         "deepstack_visual_indexes: expected ascending layers");
    config.deep.push_back(
        {layers[i], stages(fmt::format("{}{}.{}.", config.prefix, merger_names.deep, i), true)});
  }
}

void configure_qwen3_vl_tower(TowerReader& reader, TowerConfig& config) {
  read_qwen3_tower(reader, config, {"norm", "linear_fc1", "linear_fc2", "deepstack_merger_list"});
}

void configure_qwen3_omni_eye(TowerReader& reader, TowerConfig& config) {
  ConfigReader& vision = reader.vision();
  read_qwen3_tower(reader, config, {"ln_q", "mlp.0", "mlp.2", "merger_list"});
  vision.integer({"", "image_size"}, 1, 1 << 20, 768);  // of no use: the table counts
  if (!vision.flag({"", "apply_vit_abs_pos_embed"}, true))
    reader.fail(ErrorCode::kUnsupported, "apply_vit_abs_pos_embed: expected true");
}

// Sizes of the published towers, which Omni models have too.
constexpr std::string_view kQwen25VlDefaults =
    R"({"depth": 32, "hidden_size": 3584, "hidden_act": "silu", "intermediate_size": 3420,
    "num_heads": 16, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]})";
constexpr std::string_view kQwen3VlDefaults =
    R"({"depth": 27, "hidden_size": 1152, "hidden_act": "gelu_pytorch_tanh",
    "intermediate_size": 4304, "num_heads": 16, "patch_size": 16, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24]})";

}  // namespace

extern const TowerFamily kQwen2VlTower = {
    .name = "qwen2vl",
    .title = "Qwen2-VL",
    .hf_types = {"qwen2_vl"},
    .configure = configure_qwen2_vl_tower,
    .hf_defaults = R"({"depth": 32, "embed_dim": 1280, "hidden_act": "quick_gelu", "mlp_ratio": 4,
    "num_heads": 16, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2})",
};

extern const TowerFamily kQwen25VlTower = {
    .name = "qwen2.5vl",
    .title = "Qwen2.5-VL",
    .hf_types = {"qwen2_5_vl"},
    .configure = configure_qwen2_5_vl_tower,
    .hf_defaults = kQwen25VlDefaults,
};

extern const TowerFamily kQwen3VlTower = {
    .name = "qwen3vl",
    .title = "Qwen3-VL",
    .hf_types = {"qwen3_vl", "qwen3_vl_moe"},
    .configure = configure_qwen3_vl_tower,
    .hf_defaults = kQwen3VlDefaults,
};

extern const TowerFamily kQwen25OmniEye = {
    .name = "qwen2.5omni",
    .title = "Qwen2.5-Omni",
    .hf_types = {"qwen2_5_omni_thinker"},
    .configure = configure_qwen2_5_omni_eye,
    .hf_defaults = kQwen25VlDefaults,
};

extern const TowerFamily kQwen3OmniEye = {
    .name = "qwen3omni",
    .title = "Qwen3-Omni",
    .hf_types = {"qwen3_omni_moe_thinker"},
    .configure = configure_qwen3_omni_eye,
    .hf_defaults = kQwen3VlDefaults,
};

extern const TowerFamily kQwen35Tower = {
    .name = "qwen3.5",
    .title = "Qwen3.5",
    .hf_types = {"qwen3_5", "qwen3_5_moe"},
    .configure = configure_qwen3_vl_tower,
    .hf_defaults = R"({"depth": 27, "hidden_size": 1152, "hidden_act": "gelu_pytorch_tanh",
    "intermediate_size": 4304, "num_heads": 16, "patch_size": 16, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "num_position_embeddings": 2304})",
};

}  // namespace penstock
