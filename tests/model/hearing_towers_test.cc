// Towers that hear against transformers: features of tiny random checkpoints
// (tools/make_tiny_hearing.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/temp_dir.h"
#include "formats/weight_source.h"
#include "model/towers/tower.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

fs::path hearing_model(const std::string& name) {
  return tests_dir() / "golden" / "hearing" / name;
}

struct GoldenSound {
  int n_blocks, n_positions, n_frames, n_bands, n_tokens, dim;
  std::vector<float> spectra, features;
};

std::vector<GoldenSound> read_sounds(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<GoldenSound> result;
  int32_t h[6];
  const auto floats = [&](int n) {
    std::vector<float> values(static_cast<size_t>(n));
    file.read(reinterpret_cast<char*>(values.data()), n * 4);
    return values;
  };
  while (file.read(reinterpret_cast<char*>(h), sizeof h)) {
    GoldenSound& sound =
        result.emplace_back(GoldenSound{h[0], h[1], h[2], h[3], h[4], h[5], {}, {}});
    sound.spectra = floats(h[0] * h[2] * h[3]);
    sound.features = floats(h[4] * h[5]);
    EXPECT_TRUE(file.good()) << path;
  }
  return result;
}

// Frames of one block as the tower reads them: zeros are behind the end unless its convolutions add them.
std::vector<float> frames_of(const GoldenSound& sound, int block, const TowerConfig& config) {
  const auto width = static_cast<size_t>(sound.n_bands);
  const int most = config.n_inputs({1, 1, sound.n_positions}),
            n_inputs = config.ends_apart ? std::min(most, sound.n_frames) : most;
  std::vector<float> frames(static_cast<size_t>(n_inputs) * width);
  const auto from = std::span(sound.spectra)
                        .subspan(static_cast<size_t>(block * sound.n_frames) * width,
                                 static_cast<size_t>(std::min(n_inputs, sound.n_frames)) * width);
  std::ranges::copy(from, frames.begin());
  return frames;
}

class HearingTowers : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ops_ = make_ops("cpu", {.n_threads = 1}).value();
    source_ = open_weights(hearing_model(GetParam())).value();
    auto tower = Tower::load(*source_, *ops_, TowerSense::kHearing);
    ASSERT_TRUE(tower) << tower.error().message;
    ASSERT_NE(*tower, nullptr);
    tower_ = *std::move(tower);
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<WeightSource> source_;
  std::unique_ptr<Tower> tower_;
};

// Whole, and a layer at a time.
TEST_P(HearingTowers, Features) {
  const std::vector<GoldenSound> sounds = read_sounds(hearing_model(GetParam()) / "tower.bin");
  ASSERT_GE(sounds.size(), 3u);
  for (const GoldenSound& sound : sounds) {
    const PictureGrid grid{1, 1, sound.n_positions};
    for (const int layers : {0, 1}) {
      std::vector<float> rows;
      for (int block = 0; block < sound.n_blocks; ++block) {
        const std::vector<float> frames = frames_of(sound, block, tower_->config());
        const PicturePatches patches{frames, grid};
        ASSERT_TRUE(tower_->encode(patches, *ops_));
        TowerPass pass(*tower_, patches, layers);
        while (!pass.done()) ASSERT_TRUE(pass.advance(*ops_));
        const PictureFeatures features = pass.take();
        EXPECT_EQ(features.dim, sound.dim);
        rows.insert(rows.end(), features.rows.begin(), features.rows.end());
      }
      ASSERT_EQ(rows.size(), sound.features.size());
      float worst = 0;
      for (size_t i = 0; i < rows.size(); ++i)
        worst = std::max(worst, std::abs(rows[i] - sound.features[i]));
      EXPECT_LE(worst, 1e-4f);
    }
  }
}

TEST_P(HearingTowers, WrongLengthsAreRefused) {
  const TowerConfig& config = tower_->config();
  const int n = config.conformer.taps > 0            ? 50
                : config.planes.convolutions.empty() ? config.positions.cols
                                                     : 13;
  const PictureGrid whole{1, 1, n};
  const std::vector<float> frames(static_cast<size_t>(config.n_inputs(whole) * config.patch_dim));
  for (const PictureGrid wrong :
       {PictureGrid{1, 1, 0}, PictureGrid{1, 1, config.fills_unit ? -1 : config.unit - 1},
        PictureGrid{1, 2, n}, PictureGrid{1, 1, n + 1},
        PictureGrid{1, 1, config.planes.convolutions.empty() ? n - 1 : 49}}) {
    const auto got = tower_->encode({frames, wrong}, *ops_);
    ASSERT_FALSE(got) << wrong.cols;
    EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument) << got.error().message;
  }
  EXPECT_TRUE(tower_->encode({frames, whole}, *ops_));
  if (config.tail.count == 0) return;
  PictureGrid more = whole;  // than the rows that a sound always has
  while (config.units_in(more.cols) <= config.tail.count) ++more.cols;
  const std::vector<float> long_sound(
      static_cast<size_t>(config.n_inputs(more) * config.patch_dim));
  const auto got = tower_->encode({long_sound, more}, *ops_);
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, ::testing::HasSubstr("no more than become"));
}

// A file has towers of each sense by itself.
TEST_P(HearingTowers, SeesNothing) {
  const auto eye = Tower::read_config(*source_);
  if (std::string(GetParam()) == "gemma3n") {
    ASSERT_FALSE(eye);
    EXPECT_THAT(eye.error().message, ::testing::HasSubstr("vision tower of 'gemma3n'"));
    return;
  }
  ASSERT_TRUE(eye) << eye.error().message;
  EXPECT_EQ(eye->has_value(),
            std::string(GetParam()).ends_with("omni") || std::string(GetParam()) == "gemma4");
}

// Fewer frames than twice the positions, where zeros stand around what convolutions read.
TEST_P(HearingTowers, FramesThatDoNotFitAreRefused) {
  const TowerConfig& config = tower_->config();
  const PictureGrid grid{1, 1, 10};
  const auto width = static_cast<size_t>(config.patch_dim);
  const auto most = static_cast<size_t>(config.n_inputs(grid));
  const std::vector<float> frames((most + 1) * width);
  const auto takes = [&](size_t n) {
    return tower_->check(PicturePatches{std::span(frames).first(n), grid}).has_value();
  };
  EXPECT_TRUE(takes(most * width));
  EXPECT_FALSE(takes((most + 1) * width));
  EXPECT_FALSE(takes(0));
  EXPECT_FALSE(takes(width - 1));
  EXPECT_FALSE(takes((most - 1) * width - 1));
  if (config.usm.taps > 0) {  // whatever a token is made of: ten positions are 37 to 40 frames
    EXPECT_TRUE(takes(37 * width));
    EXPECT_FALSE(takes(36 * width));
    return;
  }
  EXPECT_FALSE(takes((most - 2) * width));
  const bool planes = !config.planes.convolutions.empty();
  EXPECT_EQ(takes((most - 1) * width), config.ends_apart && !planes);
  // One chunk: ten positions are 73 to 80 frames.
  for (const auto& [n, fits] : {std::pair(72, false), {73, true}, {80, true}, {81, false}}) {
    if (!planes) continue;
    EXPECT_EQ(takes(static_cast<size_t>(n) * width), fits && config.ends_apart) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, HearingTowers,
                         ::testing::Values("qwen2_audio", "voxtral", "qwen3_asr", "ultravox",
                                           "ultravox_post", "qwen2_5_omni", "qwen3_omni",
                                           "granite_speech", "gemma4", "gemma3n"),
                         [](const auto& info) { return std::string(info.param); });

TEST(HearingTower, WhatIsNotKnownIsRefusedByName) {
  const TempDir dir;
  const auto message = [&](const char* model, const std::string& key, const nlohmann::json& value) {
    const fs::path to = dir / "model";
    fs::remove_all(to);
    fs::create_directories(to);
    fs::copy_file(hearing_model(model) / "model.safetensors", to / "model.safetensors");
    auto config = nlohmann::json::parse(std::ifstream(hearing_model(model) / "config.json"));
    auto& part = config.contains("thinker_config") ? config["thinker_config"] : config;
    const char* const section = part.contains("encoder_config") ? "encoder_config" : "audio_config";
    if (key.starts_with("projector.")) {
      part["projector_config"][key.substr(10)] = value;
    } else {
      (key[0] == '.' ? part[key.substr(1)] : part[section][key]) = value;
    }
    std::ofstream(to / "config.json") << config.dump();
    const auto source = open_weights(to);
    if (!source) return source.error().message;
    const auto ops = make_ops("cpu", {.n_threads = 1}).value();
    const auto tower = Tower::load(**source, *ops, TowerSense::kHearing);
    return tower ? std::string("it was loaded") : tower.error().message;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message("voxtral", "shiny", 3),
              HasSubstr("audio_config: shiny: this field is not known"));
  EXPECT_THAT(message("voxtral", "intermediate_size", 50),
              HasSubstr("expected a multiple of hidden_size"));
  EXPECT_THAT(message("voxtral", "activation_function", "selu"), HasSubstr("expected gelu"));
  EXPECT_THAT(message("voxtral", "max_source_positions", 49), HasSubstr("embed_positions"));
  EXPECT_THAT(message("qwen2_audio", "num_mel_bins", 17), HasSubstr("conv1.weight"));
  EXPECT_THAT(message("qwen2_audio", "d_model", 25), HasSubstr("expected a multiple of 3 heads"));
  EXPECT_THAT(message("qwen2_audio", ".model_type", "qwen9_audio"),
              HasSubstr("the tower that hears of 'qwen9_audio' is not known here"));
  EXPECT_THAT(message("ultravox", ".audio_latency_block_size", 100),
              HasSubstr("audio_latency_block_size: expected null"));
  EXPECT_THAT(message("ultravox", ".num_projector_layers", 2),
              HasSubstr("num_projector_layers: expected 0"));
  EXPECT_THAT(message("ultravox", ".text_model_lora_config", {{"r", 8}}),
              HasSubstr("text_model_lora_config: r: expected 0"));
  EXPECT_THAT(message("ultravox", "model_type", "wav2vec2"), HasSubstr("expected whisper"));
  EXPECT_THAT(message("ultravox", ".projector_act", "tanh"), HasSubstr("projector_act: expected"));
  EXPECT_THAT(message("ultravox", ".hidden_size", 45), HasSubstr("hidden_size"));
  EXPECT_THAT(message("ultravox", ".projector_ln_mid", false), HasSubstr("ln_post"));
  EXPECT_THAT(message("ultravox", ".stack_factor", 7), HasSubstr("ln_pre"));
  EXPECT_THAT(message("ultravox", "shiny", 3), HasSubstr("shiny: this field is not known"));
  EXPECT_THAT(message("granite_speech", "shiny", 3),
              HasSubstr("encoder_config: shiny: this field is not known"));
  EXPECT_THAT(message("granite_speech", "projector.shiny", 3),
              HasSubstr("projector_config: shiny: this field is not known"));
  EXPECT_THAT(message("granite_speech", "projector.use_qformer_text_input", true),
              HasSubstr("use_qformer_text_input: expected false"));
  EXPECT_THAT(message("granite_speech", "projector.model_type", "perceiver"),
              HasSubstr("expected blip_2_qformer"));
  EXPECT_THAT(message("granite_speech", "projector.encoder_hidden_size", 20),
              HasSubstr("expected encoder_config's hidden_dim"));
  EXPECT_THAT(message("granite_speech", "projector.num_attention_heads", 3),
              HasSubstr("expected a multiple of num_attention_heads"));
  EXPECT_THAT(message("granite_speech", ".downsample_rate", 4),
              HasSubstr("expected a divisor of window_size (6), got 4"));
  EXPECT_THAT(message("granite_speech", ".window_size", 8), HasSubstr("projector.query"));
  EXPECT_THAT(message("granite_speech", "context_size", 33), HasSubstr("max_pos_emb"));
  EXPECT_THAT(message("granite_speech", "max_pos_emb", 31), HasSubstr("rel_pos_emb"));
  EXPECT_THAT(message("granite_speech", "num_heads", 1000), HasSubstr("distances of all heads"));
  EXPECT_THAT(message("granite_speech", "conv_kernel_size", 6), HasSubstr("depth_conv"));
  EXPECT_THAT(message("granite_speech", "num_layers", 1), HasSubstr("expected at least 2"));
  EXPECT_THAT(message("granite_speech", "dim_head", 7), HasSubstr("to_q"));
  EXPECT_THAT(message("granite_speech", "input_dim", 14), HasSubstr("input_linear"));
  EXPECT_THAT(message("gemma3n", "shiny", 3), HasSubstr("audio_config: shiny: this field is not"));
  EXPECT_THAT(message("gemma3n", "conf_attention_context_right", 1),
              HasSubstr("conf_attention_context_right: expected 0, got 1"));
  EXPECT_THAT(message("gemma3n", "sscp_conv_stride_size", {{2, 2}, {1, 2}}),
              HasSubstr("sscp_conv_stride_size: expected [[2,2],[2,2]]"));
  EXPECT_THAT(message("gemma3n", "sscp_conv_kernel_size", 5), HasSubstr("sscp_conv_kernel_size"));
  EXPECT_THAT(message("gemma3n", "vocab_offset", 0), HasSubstr("vocab_offset: expected"));
  EXPECT_THAT(message("gemma3n", "vocab_size", 5), HasSubstr("embedding.weight"));
  EXPECT_THAT(message("gemma3n", "input_feat_size", 30), HasSubstr("input_proj_linear"));
  EXPECT_THAT(message("gemma3n", ".eoa_token_id", 1), HasSubstr("vocab_offset: expected"));
  EXPECT_THAT(message("gemma4", "shiny", 3), HasSubstr("audio_config: shiny: this field is not"));
  EXPECT_THAT(message("gemma4", "attention_context_right", 2),
              HasSubstr("attention_context_right: expected 0, got 2"));
  EXPECT_THAT(message("gemma4", "attention_chunk_size", 5),
              HasSubstr("expected attention_context_left - 1 (4), got 5"));
  EXPECT_THAT(message("gemma4", "attention_invalid_logits_value", -1),
              HasSubstr("attention_invalid_logits_value: expected at most"));
  EXPECT_THAT(message("gemma4", "subsampling_conv_channels", {16, 6, 2}),
              HasSubstr("subsampling_conv_channels: expected two numbers"));
  EXPECT_THAT(message("gemma4", "subsampling_conv_channels", {20, 6}), HasSubstr("layer0.conv"));
  EXPECT_THAT(message("gemma4", "use_clipped_linears", false), HasSubstr("ffw_layer_1.input_max"));
  EXPECT_THAT(message("gemma4", "hidden_size", 25), HasSubstr("expected an even multiple of 3"));
  EXPECT_THAT(message("gemma4", "conv_kernel_size", 5), HasSubstr("depthwise_conv1d"));
  EXPECT_THAT(message("gemma4", "hidden_act", "selu"), HasSubstr("hidden_act: expected gelu"));
  EXPECT_THAT(message("gemma4", "output_proj_dims", 21), HasSubstr("output_proj"));
  EXPECT_THAT(message("gemma4", "num_hidden_layers", 2), HasSubstr("audio_tower.layers.2."));
  EXPECT_THAT(message("gemma4", ".text_config", {{"use_bidirectional_attention", "vision"}}),
              HasSubstr("use_bidirectional_attention: expected null in a model that hears"));
  EXPECT_THAT(message("qwen2_5_omni", "n_window", 9), HasSubstr("expected even numbers"));
  EXPECT_THAT(message("qwen2_5_omni", "max_source_positions", 5),
              HasSubstr("max_source_positions"));
  EXPECT_THAT(message("qwen2_5_omni", "output_dim", 31), HasSubstr("proj.weight"));
  EXPECT_THAT(message("qwen3_omni", "downsample_hidden_size", 5), HasSubstr("conv2d1.weight"));
  EXPECT_THAT(message("qwen3_omni", "shiny", 3), HasSubstr("shiny: this field is not known"));
}

}  // namespace
}  // namespace penstock
