// Towers that hear of Gemma 3n and 4: two convolutions over the plane of frames and bands, conformer layers of
// a Universal Speech Model, and a norm and a projection as behind towers that see. Gemma 4 has a linear layer
// between; Gemma 3n takes every fourth position and fills up to a number of tokens.
#include <algorithm>
#include <cmath>

#include "model/towers/families.h"

namespace penstock {
namespace {

// Frames of a piece of the convolutions, which become a quarter as many positions.
constexpr int kPieceFrames = 192;
// Below minus this, a score is that of a position which is not seen.
constexpr float kUnseen = 1e4f;

// Sizes and the scale of queries that both have.
void set_layers(TowerReader& reader, TowerConfig& config, int n_layers, int dim, int n_heads) {
  if (dim % n_heads != 0 || dim % 2 != 0)
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("hidden_size: expected an even multiple of {} heads, got {}", n_heads, dim));
  set_tower_layers(config, n_layers, dim, n_heads, 4 * dim);
  const float eps = reader.hearing().number({"", "rms_norm_eps"}, 0, 1, 1e-6f);
  config.layers.norm = {.eps = eps};
  config.usm.eps = config.usm.plane_eps = eps;
  config.usm.bound = reader.hearing().number({"", "gradient_clipping"}, 0, 3e38f, 1e10f);
  config.usm.query_scale =
      static_cast<float>(1.0 / std::sqrt(double{1} * config.layers.head_dim) / std::log(2.0));
  config.unit_in_row = true;
}

void set_planes(TowerConfig& config, int n_bands) {
  config.patch_size = 1, config.patch_dim = n_bands;
  TowerPlanes& planes = config.planes;
  planes.convolutions = {"0", "1"};
  planes.channels = config.usm.channels[0];
  planes.n_frames = kPieceFrames, planes.n_positions = kPieceFrames / 4;
  config.ends_apart = true;
}

// The fields of attention. Those of other values than the computed ones are refused.
void read_attention(TowerReader& reader, TowerConfig& config) {
  ConfigReader& audio = reader.hearing();
  const int chunk = audio.integer({"", "attention_chunk_size"}, 1, 1 << 12, 12),
            left = audio.integer({"", "attention_context_left"}, 2, 1 << 12, 13),
            right = audio.integer({"", "attention_context_right"}, 0, 1 << 12, 0);
  if (right != 0)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("attention_context_right: expected 0, got {}", right));
  if (chunk != left - 1)
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("attention_chunk_size: expected attention_context_left - 1 ({}), got {}",
                    left - 1, chunk));
  if (audio.number({"", "attention_invalid_logits_value"}, -1e38f, 1e38f, -1e9f) > -kUnseen)
    reader.fail(ErrorCode::kUnsupported, "attention_invalid_logits_value: expected at most -10000");
  TowerUsm& usm = config.usm;
  usm.seen = left - 1, usm.n_distances = left;
  usm.softcap = audio.number({"", "attention_logit_cap"}, 1e-3f, kUnseen / 10, 50.0f);
  usm.key_scale = static_cast<float>(std::log1p(std::exp(1.0)) / std::log(2.0));
}

// Two numbers of channels.
void read_channels(TowerReader& reader, TowerConfig& config, const char* name) {
  std::vector<int>& channels = config.usm.channels;
  channels = reader.hearing().integers({"", name}, 1, 1 << 12);
  if (channels.size() != 2 && !channels.empty())
    reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected two numbers", name));
  if (channels.size() != 2) channels = {128, 32};
}

// Tokens of a sound see those before them only; text models whose pictures see themselves let all parts.
void refuse_parts_that_see(TowerReader& reader) {
  const nlohmann::json* const text = reader.whole().find({"", "text_config"});
  if (text == nullptr || !text->is_object()) return;
  const auto found = text->find("use_bidirectional_attention");
  if (found != text->end() && !found->is_null())
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("text_config: use_bidirectional_attention: expected null in a model that "
                    "hears, got {}",
                    found->dump().substr(0, 60)));
}

void configure_gemma4_ear(TowerReader& reader, TowerConfig& config) {
  refuse_parts_that_see(reader);
  ConfigReader& audio = reader.hearing();
  const std::string at = reader.prefix({"model.audio_tower.", "audio_tower."},
                                       "subsample_conv_projection.input_proj_linear.weight");
  set_layers(reader, config, audio.integer({"", "num_hidden_layers"}, 1, 1 << 10),
             audio.integer({"", "hidden_size"}, 2, 1 << 16),
             audio.integer({"", "num_attention_heads"}, 1, 1 << 10));
  set_tower_activation(config, reader.activation({"", "hidden_act"}, "silu"), false);
  TowerUsm& usm = config.usm;
  usm.taps = audio.integer({"", "conv_kernel_size"}, 1, 1 << 8, 5);
  usm.residual_weight = audio.number({"", "residual_weight"}, -1e6f, 1e6f, 0.5f);
  usm.linears = audio.flag({"", "use_clipped_linears"}, true) ? TowerLinears::kBounded
                                                              : TowerLinears::kInside;
  read_attention(reader, config);
  read_channels(reader, config, "subsampling_conv_channels");
  if (usm.channels[0] % 4 != 0)
    return reader.fail(ErrorCode::kUnsupported,
                       "subsampling_conv_channels: expected a multiple of 4 first");
  // transformers reckons the bands behind the convolutions as channels[0] / 4, so that there are as many
  // bands as channels.
  set_planes(config, usm.channels[0]);
  config.prefix = at;
  config.names.layer = "layers.{}.";
  config.roots.push_back(at);
  const std::string embedder =
      reader.prefix({"model.embed_audio.", "embed_audio."}, "embedding_projection.weight");
  config.roots.push_back(embedder);
  config.text_dim = reader.dimension(embedder + "embedding_projection.weight", 0);
  NormConfig bare = config.layers.norm;
  bare.bare = true;
  config.projector = {
      linear_stage(at + "output_proj", audio.integer({"", "output_proj_dims"}, 1, 1 << 20, 1536)),
      norm_stage("", bare), linear_stage(embedder + "embedding_projection", config.text_dim)};
}

// Convolutions of 3 x 3 at every second place, as others are not computed.
void expect_squares(TowerReader& reader, const char* name, int side) {
  const nlohmann::json* const value = reader.hearing().find({"", name});
  const nlohmann::json pair = {side, side}, wanted = {pair, pair};
  if (value != nullptr && *value != wanted)
    reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected {}, got {}", name, wanted.dump(),
                                                     value->dump().substr(0, 60)));
}

void read_gemma3n_attention(TowerReader& reader, TowerConfig& config) {
  ConfigReader& audio = reader.hearing();
  const int left = audio.integer({"", "conf_attention_context_left"}, 1, 1 << 12, 13);
  audio.integer({"", "conf_attention_chunk_size"}, 1, 1 << 12, 12);  // changes nothing
  if (const int right = audio.integer({"", "conf_attention_context_right"}, 0, 1 << 12, 0);
      right != 0)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("conf_attention_context_right: expected 0, got {}", right));
  config.usm.seen = config.usm.n_distances = left;
  config.usm.softcap = audio.number({"", "conf_attention_logit_cap"}, 1e-3f, kUnseen / 10, 50.0f);
}

// What stands in the places of a sound behind its features: the last embedding of the vocabulary, and that
// of the token behind the sound, which stands for the text model's row of it.
void read_gemma3n_tail(TowerReader& reader, TowerConfig& config, const std::string& embedder) {
  ConfigReader& audio = reader.hearing();
  ConfigReader& whole = reader.whole();
  TowerTail& tail = config.tail;
  tail.prefix = embedder;
  tail.count = whole.integer({"", "audio_soft_tokens_per_image"}, 1, 1 << 14, 188);
  tail.rows = audio.integer({"", "vocab_size"}, 1, 1 << 20, 128);
  const int offset = audio.integer({"", "vocab_offset"}, 0, 1 << 24, 262272);
  int n_words = 262400;
  if (const nlohmann::json* const text = whole.find({"", "text_config"});
      text != nullptr && text->is_object() && text->contains("vocab_size")) {
    const nlohmann::json& own = (*text)["vocab_size"];
    n_words = own.is_number_integer() && own > 0 && own < 1 << 24 ? own.get<int>() : 0;
  }
  tail.fill = n_words - 1 - offset;
  tail.last = whole.integer({"", "eoa_token_id"}, 0, 1 << 24, 262272) - offset;
  if (std::min(tail.fill, tail.last) >= 0 && std::max(tail.fill, tail.last) < tail.rows) return;
  tail.fill = tail.last = 0;
  reader.fail(
      ErrorCode::kUnsupported,
      fmt::format("vocab_offset: expected text_config's vocab_size - 1 and eoa_token_id from "
                  "{} to {}",
                  offset, offset + tail.rows - 1));
}

void configure_gemma3n_ear(TowerReader& reader, TowerConfig& config) {
  ConfigReader& audio = reader.hearing();
  const std::string at = reader.prefix({"model.audio_tower.", "audio_tower."},
                                       "subsample_conv_projection.input_proj_linear.weight");
  set_layers(reader, config, audio.integer({"", "conf_num_hidden_layers"}, 1, 1 << 10, 12),
             audio.integer({"", "hidden_size"}, 2, 1 << 16, 1536),
             audio.integer({"", "conf_num_attention_heads"}, 1, 1 << 10, 8));
  set_tower_activation(config, Activation::kSilu, false);
  TowerUsm& usm = config.usm;
  usm.taps = audio.integer({"", "conf_conv_kernel_size"}, 1, 1 << 8, 5);
  usm.residual_weight = audio.number({"", "conf_residual_weight"}, -1e6f, 1e6f, 0.5f);
  usm.plane_eps = audio.number({"", "sscp_conv_group_norm_eps"}, 0, 1, 1e-3f);
  usm.cumulative = true;
  read_gemma3n_attention(reader, config);
  read_channels(reader, config, "sscp_conv_channel_size");
  expect_squares(reader, "sscp_conv_kernel_size", 3);
  expect_squares(reader, "sscp_conv_stride_size", 2);
  set_planes(config, audio.integer({"", "input_feat_size"}, 1, 1 << 12, 128));
  usm.names = {.plane = "conv_{}.",
               .first = "ffw_layer_start.",
               .last = "ffw_layer_end.",
               .attention_before = "attention.pre_attn_norm",
               .attention_behind = "attention.post_norm",
               .attention = "attention.attn.",
               .output = "attention.post",
               .distances = "attention.attn.relative_position_embedding.pos_proj",
               .norm = "norm"};
  config.prefix = at;
  config.names.layer = "conformer.{}.";
  config.roots.push_back(at);
  config.unit = audio.integer({"", "conf_reduction_factor"}, 1, 1 << 8, 4);
  config.fills_unit = true;
  const std::string embedder =
      reader.prefix({"model.embed_audio.", "embed_audio."}, "embedding_projection.weight");
  config.roots.push_back(embedder);
  config.text_dim = reader.dimension(embedder + "embedding_projection.weight", 0);
  NormConfig norm = config.layers.norm, bare = norm;
  bare.bare = true;
  config.projector = {ProjectorStage{.kind = ProjectorStage::Kind::kFirst},
                      norm_stage(embedder + "soft_embedding_norm", norm),
                      linear_stage(embedder + "embedding_projection", config.text_dim),
                      norm_stage("", bare)};
  read_gemma3n_tail(reader, config, embedder);
}

}  // namespace

extern const TowerFamily kGemma4Ear = {
    .name = "gemma4",
    .title = "Gemma 4",
    .hf_types = {"gemma4"},
    .configure = configure_gemma4_ear,
    .hf_defaults = R"({"hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8})",
    .sense = TowerSense::kHearing,
};

extern const TowerFamily kGemma3nEar = {
    .name = "gemma3n",
    .title = "Gemma 3n",
    .hf_types = {"gemma3n"},
    .configure = configure_gemma3n_ear,
    .hf_defaults = "",
    .sense = TowerSense::kHearing,
};

}  // namespace penstock
