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

// Frames of one block as the tower reads them: one more than twice its positions, zeros behind the end.
std::vector<float> frames_of(const GoldenSound& sound, int block, int n_inputs) {
  const auto width = static_cast<size_t>(sound.n_bands);
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
        const std::vector<float> frames = frames_of(sound, block, tower_->config().n_inputs(grid));
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
  const PictureGrid whole{1, 1, config.planes.convolutions.empty() ? 50 : 13};
  const std::vector<float> frames(static_cast<size_t>(config.n_inputs(whole) * config.patch_dim));
  for (const PictureGrid wrong :
       {PictureGrid{1, 1, 0}, PictureGrid{1, 1, config.unit - 1}, PictureGrid{1, 2, 50},
        PictureGrid{1, 1, 51}, PictureGrid{1, 1, 49}}) {
    const auto got = tower_->encode({frames, wrong}, *ops_);
    ASSERT_FALSE(got) << wrong.cols;
    EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument) << got.error().message;
  }
  EXPECT_TRUE(tower_->encode({frames, whole}, *ops_));
}

// A file has towers of each sense by itself.
TEST_P(HearingTowers, SeesNothing) {
  const auto eye = Tower::read_config(*source_);
  ASSERT_TRUE(eye) << eye.error().message;
  EXPECT_FALSE(eye->has_value());
}

INSTANTIATE_TEST_SUITE_P(Tiny, HearingTowers,
                         ::testing::Values("qwen2_audio", "voxtral", "qwen3_asr"),
                         [](const auto& info) { return std::string(info.param); });

TEST(HearingTower, WhatIsNotKnownIsRefusedByName) {
  const TempDir dir;
  const auto message = [&](const char* model, const std::string& key, const nlohmann::json& value) {
    const fs::path to = dir / "model";
    fs::remove_all(to);
    fs::create_directories(to);
    fs::copy_file(hearing_model(model) / "model.safetensors", to / "model.safetensors");
    auto config = nlohmann::json::parse(std::ifstream(hearing_model(model) / "config.json"));
    (key[0] == '.' ? config[key.substr(1)] : config["audio_config"][key]) = value;
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
}

}  // namespace
}  // namespace penstock
