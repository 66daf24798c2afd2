// Gemma 4: tables of columns and rows, norms around sub-layers and of heads, two rotations; units
// are averaged, standardised if the file says so, normed and projected.
#include <cmath>

#include "model/towers/families.h"

namespace penstock {

namespace {

void name_gemma4_tensors(NameTable& names) {
  names.layer = "encoder.layers.{}.";
  names[tensor::kAttnNorm] = "input_layernorm",
  names[tensor::kAttnPostNorm] = "post_attention_layernorm";
  names[tensor::kFfnNorm] = "pre_feedforward_layernorm",
  names[tensor::kFfnPostNorm] = "post_feedforward_layernorm";
  names[tensor::kQ] = "self_attn.q_proj.linear", names[tensor::kK] = "self_attn.k_proj.linear";
  names[tensor::kV] = "self_attn.v_proj.linear", names[tensor::kO] = "self_attn.o_proj.linear";
  names[tensor::kGate] = "mlp.gate_proj.linear", names[tensor::kUp] = "mlp.up_proj.linear";
  names[tensor::kDown] = "mlp.down_proj.linear";
}

// The first half of a head turns by columns, the second by rows.
std::vector<TowerRope> gemma4_ropes(int head_dim, float theta) {
  std::vector<TowerRope> ropes(2);
  for (const int half : {0, 1}) {
    TowerRope& rope = ropes[static_cast<size_t>(half)];
    rope.first_feature = half * head_dim / 2;
    for (int i = 0; i < head_dim / 4; ++i) {
      rope.frequencies.push_back(
          std::pow(theta, -4.0f * static_cast<float>(i) / static_cast<float>(head_dim)));
      rope.axes.push_back(static_cast<uint8_t>(2 - half));
    }
  }
  return ropes;
}

void configure_gemma4_tower(TowerReader& reader, TowerConfig& config) {
  ConfigReader& vision = reader.vision();
  const int dim = vision.integer({"", "hidden_size"}, 1, 1 << 16),
            n_heads = vision.integer({"", "num_attention_heads"}, 1, 1 << 10),
            head_dim = vision.integer({"", "head_dim"}, 4, 1 << 12, 64);
  set_tower_layers(config, vision.integer({"", "num_hidden_layers"}, 1, 1 << 10), dim, n_heads,
                   vision.integer({"", "intermediate_size"}, 1, 1 << 20));
  ModelConfig& layers = config.layers;
  layers.head_dim = head_dim;
  layers.n_kv_heads = vision.integer({"", "num_key_value_heads"}, 1, n_heads, n_heads);
  if (head_dim % 4 != 0 || n_heads % layers.n_kv_heads != 0)
    return reader.fail(ErrorCode::kUnsupported,
                       "head_dim, num_key_value_heads: expected multiples of 4 and a divisor of "
                       "num_attention_heads");
  layers.norm = {.eps = vision.number({"", "rms_norm_eps"}, 0, 1, 1e-6f)};
  layers.residual.norms = NormPlacement::kBoth;
  layers.attention.qk_norm = QkNorm::kHead, layers.attention.value_norm = true;
  layers.attention.scale = 1.0f;
  set_tower_activation(config, reader.activation({"", "hidden_activation"}, "gelu_pytorch_tanh"),
                       true);
  vision.integer({"", "max_position_embeddings"}, 1, 1 << 30, 1 << 17);  // of no use
  vision.has({"", "default_output_length"});   // the processor's number of tokens
  vision.has({"", "global_head_dim"});         // of the text model: all layers here are of one kind
  vision.flag({"", "attention_bias"}, false);  // biases are read if they are there
  config.clipped = vision.flag({"", "use_clipped_linears"}, false);
  config.patch_size = reader.side({"", "patch_size"}, 16);
  config.patch_dim = 3 * config.patch_size * config.patch_size;
  config.patch_scale = 2.0f, config.patch_shift = -1.0f;
  config.unit = vision.integer({"", "pooling_kernel_size"}, 1, 16, 3);
  config.ropes = gemma4_ropes(head_dim, read_axial_theta(reader, 100.0f));
  config.prefix =
      reader.prefix({"model.vision_tower.", "vision_tower."}, "patch_embedder.input_proj.weight");
  const std::string& at = config.prefix;
  config.patch_name = at + "patch_embedder.input_proj";
  const int n_positions = vision.integer({"", "position_embedding_size"}, 1, 1 << 20, 10240);
  config.positions = {.kind = TowerPositions::Kind::kSums,
                      .name = at + "patch_embedder.position_embedding_table",
                      .rows = n_positions,
                      .cols = n_positions};
  config.roots.push_back(at);
  name_gemma4_tensors(config.names);
  ProjectorStage root{.kind = ProjectorStage::Kind::kScale,
                      .factor = std::sqrt(static_cast<float>(dim))};
  config.projector = {mean_stage(), root};
  if (vision.flag({"", "standardize"}, false))
    config.projector.push_back({.kind = ProjectorStage::Kind::kStandardize,
                                .name = at + "std_bias",
                                .other = at + "std_scale"});
  const std::string embedder =
      reader.prefix({"model.embed_vision.", "embed_vision."}, "embedding_projection.weight");
  config.roots.push_back(embedder);
  NormConfig bare = layers.norm;
  bare.bare = true;
  config.text_dim = reader.dimension(embedder + "embedding_projection.weight", 0);
  config.projector.push_back(norm_stage("", bare));
  config.projector.push_back(linear_stage(embedder + "embedding_projection", config.text_dim));
}

}  // namespace

extern const TowerFamily kGemma4Tower = {
    .name = "gemma4",
    .title = "Gemma 4",
    .hf_types = {"gemma4"},
    .configure = configure_gemma4_tower,
    .hf_defaults = R"({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16,
    "num_attention_heads": 12})",
};

}  // namespace penstock
