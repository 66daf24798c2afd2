// Vision towers against transformers: features of tiny random checkpoints
// (tools/make_tiny_towers.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/temp_dir.h"
#include "formats/weight_source.h"
#include "model/towers/mmproj.h"
#include "model/towers/tower.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

struct GoldenPicture {
  PictureGrid grid;
  std::vector<float> patches;
  PictureFeatures features;
};

std::vector<float> read_floats(std::ifstream& file, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  file.read(reinterpret_cast<char*>(values.data()), n * 4);
  return values;
}

std::vector<GoldenPicture> read_pictures(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<GoldenPicture> result;
  int32_t header[7];
  while (file.read(reinterpret_cast<char*>(header), sizeof header)) {
    GoldenPicture& picture = result.emplace_back();
    picture.grid = {header[0], header[1], header[2]};
    picture.patches = read_floats(file, picture.grid.n_patches() * header[3]);
    const int64_t size = int64_t{header[4]} * header[5];
    picture.features = {header[4], header[5], read_floats(file, size), {}};
    for (int i = 0; i < header[6]; ++i) picture.features.deep.push_back(read_floats(file, size));
    EXPECT_TRUE(file.good()) << path;
  }
  return result;
}

struct TowerCase {
  fs::path path;  // the directory or the GGUF file
  fs::path golden;
  std::string name;
};

void PrintTo(const TowerCase& c, std::ostream* out) { *out << c.name; }

std::vector<TowerCase> tower_cases() {
  std::vector<TowerCase> result;
  for (const auto& entry : fs::directory_iterator(tests_dir() / "golden" / "towers")) {
    const fs::path dir = entry.path();
    const std::string name = dir.filename().string();
    result.push_back({dir, dir / "golden.bin", name + "_hf"});
    if (fs::exists(dir / "mmproj.gguf"))
      result.push_back({dir / "mmproj.gguf", dir / "golden.bin", name + "_gguf"});
  }
  std::ranges::sort(result, {}, &TowerCase::name);
  return result;
}

// The largest difference, relative to the root mean square of the wanted values.
double error_of(const std::vector<float>& got, const std::vector<float>& wanted) {
  if (got.size() != wanted.size()) return 1e30;
  double worst = 0, square = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(got[i] - wanted[i]);
    worst = difference <= worst ? worst : difference;  // a NaN is kept
    square += double{wanted[i]} * wanted[i];
  }
  return worst / std::sqrt(square / static_cast<double>(wanted.size()));
}

class GoldenTowers : public ::testing::TestWithParam<TowerCase> {
 protected:
  void SetUp() override {
    pictures_ = read_pictures(GetParam().golden);
    ASSERT_FALSE(pictures_.empty());
    ops_ = make_ops("cpu", {.n_threads = 1}).value();
    const bool gguf = GetParam().path.extension() == ".gguf";
    auto source = gguf ? open_mmproj(GetParam().path) : open_weights(GetParam().path);
    ASSERT_TRUE(source) << source.error().message;
    source_ = std::move(source).value();
    auto tower = Tower::load(*source_, *ops_);
    ASSERT_TRUE(tower) << tower.error().message;
    ASSERT_NE(*tower, nullptr);
    tower_ = std::move(tower).value();
  }

  static void expect_features(const PictureFeatures& got, const PictureFeatures& wanted) {
    EXPECT_EQ(got.n_tokens, wanted.n_tokens);
    EXPECT_EQ(got.dim, wanted.dim);
    EXPECT_LE(error_of(got.rows, wanted.rows), 1e-4);
    ASSERT_EQ(got.deep.size(), wanted.deep.size());
    for (size_t i = 0; i < got.deep.size(); ++i)
      EXPECT_LE(error_of(got.deep[i], wanted.deep[i]), 1e-4);
  }

  std::vector<GoldenPicture> pictures_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<WeightSource> source_;
  std::unique_ptr<Tower> tower_;
};

TEST_P(GoldenTowers, Features) {
  for (const GoldenPicture& picture : pictures_) {
    const auto got = tower_->encode({picture.patches, picture.grid}, *ops_);
    ASSERT_TRUE(got) << got.error().message;
    expect_features(*got, picture.features);
  }
}

// Pieces of one layer give what one piece gives.
TEST_P(GoldenTowers, PieceByPiece) {
  for (const GoldenPicture& picture : pictures_) {
    const PicturePatches patches{picture.patches, picture.grid};
    TowerPass pass(*tower_, patches, 1);
    int n_pieces = 0;
    for (; !pass.done(); ++n_pieces) ASSERT_TRUE(pass.advance(*ops_));
    EXPECT_EQ(n_pieces, picture.grid.n_frames * tower_->config().layers.n_layers);
    expect_features(pass.take(), picture.features);
  }
}

TEST_P(GoldenTowers, WrongGridsAreRefused) {
  const PictureGrid grid = pictures_[0].grid;
  for (const PictureGrid wrong :
       {PictureGrid{0, grid.rows, grid.cols}, PictureGrid{1, 0, grid.cols},
        PictureGrid{1, grid.rows, -1}, PictureGrid{1, 1 << 20, 1 << 20},
        PictureGrid{1, grid.rows, grid.cols + grid.rows}}) {
    const auto got = tower_->encode({pictures_[0].patches, wrong}, *ops_);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument) << got.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTowers, ::testing::ValuesIn(tower_cases()),
                         [](const auto& info) { return info.param.name; });

// A text model's directory has no tower.
TEST(Towers, TextModelsHaveNone) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  const auto source = open_weights(tests_dir() / "golden" / "models" / "llama2").value();
  const auto tower = Tower::load(*source, *ops);
  ASSERT_TRUE(tower) << tower.error().message;
  EXPECT_EQ(*tower, nullptr);
}

// A copy of a golden directory with another vision_config.
class ChangedTower : public ::testing::Test {
 protected:
  void change(const std::string& name, const std::string& key, const nlohmann::json& value) {
    const fs::path from = tests_dir() / "golden" / "towers" / name;
    fs::remove_all(dir_ / "model");
    fs::create_directories(dir_ / "model");
    fs::copy_file(from / "model.safetensors", dir_ / "model" / "model.safetensors");
    nlohmann::json config = nlohmann::json::parse(std::ifstream(from / "config.json"));
    nlohmann::json& object = key.find('.') == 0 ? config : config["vision_config"];
    object[key.find('.') == 0 ? key.substr(1) : key] = value;
    std::ofstream(dir_ / "model" / "config.json") << config.dump();
  }

  void expect_error(ErrorCode code, const std::string& part) {
    const auto ops = make_ops("cpu", {.n_threads = 1}).value();
    const auto source = open_weights(dir_ / "model");
    ASSERT_TRUE(source) << source.error().message;
    const auto tower = Tower::load(**source, *ops);
    ASSERT_FALSE(tower) << "expected: " << part;
    EXPECT_EQ(tower.error().code, code) << tower.error().message;
    EXPECT_THAT(tower.error().message, ::testing::HasSubstr(part));
  }

  TempDir dir_;
};

TEST_F(ChangedTower, WhatIsNotKnownIsRefusedByName) {
  change("gemma3", "shiny_rope", 3);
  expect_error(ErrorCode::kUnsupported, "vision_config: shiny_rope: this field is not known");
  change("gemma3", "hidden_act", "selu");
  expect_error(ErrorCode::kUnsupported, "hidden_act: expected gelu");
  change("gemma3", ".model_type", "gemma33");
  expect_error(ErrorCode::kUnsupported, "vision tower of 'gemma33' is not known");
  change("gemma3", ".mm_tokens_per_image", 10);
  expect_error(ErrorCode::kUnsupported, "mm_tokens_per_image: expected the square");
  change("qwen2_5_vl", "rope_parameters", {{"rope_type", "yarn"}});
  expect_error(ErrorCode::kUnsupported, "rope_type: expected axial, got 'yarn'");
  change("qwen3_vl", "deepstack_visual_indexes", {2, 0});
  expect_error(ErrorCode::kUnsupported, "deepstack_visual_indexes: expected ascending layers");
  change("llava_clip", ".vision_feature_layer", {-2, -1});
  expect_error(ErrorCode::kUnsupported, "vision_feature_layer: the states of several layers");
  change("llava_clip", ".vision_feature_select_strategy", "full");
  expect_error(ErrorCode::kUnsupported,
               "vision_feature_select_strategy: expected default, got 'full'");
}

TEST_F(ChangedTower, OtherSizesThanTheTensorsAreNamed) {
  change("gemma3", "hidden_size", 48);
  expect_error(ErrorCode::kCorruptFile, "patch_embedding.weight");
  change("gemma3", "num_hidden_layers", 3);
  expect_error(ErrorCode::kCorruptFile, "encoder.layers.2.layer_norm1.weight is missing");
  change("gemma3", "num_hidden_layers", 1);
  expect_error(ErrorCode::kUnsupported, "is not part of the tower of gemma3");
  change("internvl", "hidden_size", 25);
  expect_error(ErrorCode::kCorruptFile, "hidden_size: expected a multiple of 3 heads");
  change("gemma3", "image_size", 3);
  expect_error(ErrorCode::kCorruptFile, "image_size: expected at least 4 pixels");
  change("qwen3_vl", "patch_size", 0);
  expect_error(ErrorCode::kCorruptFile, "patch_size");
}

TEST(Towers, PatchesOfPlanes) {
  std::vector<float> planes(2 * 3 * 4 * 6);
  for (size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<float>(i);
  const std::vector<float> patches = cut_patches(planes, 2, 4, 6, 2);
  ASSERT_EQ(patches.size(), planes.size());
  EXPECT_THAT(std::span(patches).first(12),
              ::testing::ElementsAre(0, 1, 6, 7, 24, 25, 30, 31, 48, 49, 54, 55));
  EXPECT_THAT(std::span(patches).subspan(12 * 4, 4), ::testing::ElementsAre(14, 15, 20, 21));
  EXPECT_THAT(std::span(patches).subspan(12 * 6, 4), ::testing::ElementsAre(72, 73, 78, 79));
}

}  // namespace
}  // namespace penstock
