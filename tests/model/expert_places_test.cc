// Which layers' experts lie on the host: llama.cpp's flags, and what fits a device.
#include "model/load/expert_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "model/arch/read_config.h"
#include "model/load/stages.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

class ExpertPlacesTest : public ::testing::Test {
 protected:
  void open(const std::string& path) {
    source_ = open_weights(tests_dir() / "golden" / "models" / path).value();
    config_ = read_config(*source_).value();
  }
  std::string places(const ExpertWishes& wishes) {
    const auto places = wished_places(*source_, config_, wishes);
    return places ? describe(*places) : places.error().message;
  }

  std::unique_ptr<WeightSource> source_;
  ModelConfig config_;
};

TEST_F(ExpertPlacesTest, FollowTheFlags) {
  for (const char* path : {"mixtral", "mixtral/model.gguf"}) {
    open(path);
    ASSERT_EQ(config_.n_layers, 2);
    EXPECT_EQ(places({.n_first = 0}), "none of 2");
    EXPECT_EQ(places({.n_first = 1}), "0 of 2");
    EXPECT_EQ(places({.n_first = 7}), "0-1 of 2");
    EXPECT_EQ(places({.all = true}), "0-1 of 2");
    EXPECT_EQ(places({.override_tensor = "exps=CPU"}), "0-1 of 2");
    EXPECT_EQ(places({.override_tensor = "blk\\.1\\.ffn_.*_exps\\.=CPU"}), "1 of 2");
    EXPECT_EQ(places({.override_tensor = "blk.0.*exps=CUDA0,exps=CPU"}), "1 of 2");
    EXPECT_EQ(places({.n_first = 1, .override_tensor = "blk.0.*exps=CUDA0"}), "none of 2");
    EXPECT_EQ(places({.n_first = 1, .override_tensor = "blk.1.*_(gate|up|down)_exps=CPU"}),
              "0-1 of 2");
  }
}

// Layers before the first mixture have none.
TEST_F(ExpertPlacesTest, DenseLayersHaveNone) {
  open("deepseek_v3");
  ASSERT_FALSE(config_.layers[0].moe);
  const ExpertPlaces all = wished_places(*source_, config_, {.all = true}).value();
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], config_.layers[i].moe) << i;
}

TEST_F(ExpertPlacesTest, WhatCannotBeHonouredIsRefusedByName) {
  open("qwen2_moe");
  const std::pair<const char*, const char*> kCases[] = {
      {"exps", "override_tensor: exps: expected PATTERN=CPU or PATTERN=CUDA0"},
      {"exps=CUDA1", "override_tensor: exps=CUDA1: expected PATTERN=CPU or PATTERN=CUDA0"},
      {"=CPU", "expected PATTERN=CPU"},
      {"exps(=CPU", "override_tensor: exps(=CPU: expected a regular expression"},
      {"blk.0.ffn_.*=CPU", "finds blk.0.ffn_norm.weight too: expected tensors of experts only"},
      {"ffn_gate=CPU", "finds blk.0.ffn_gate_inp.weight too"},
      {"shexp=CPU", "finds blk.0.ffn_gate_shexp.weight too"},
      {"^output=CPU", "finds output.weight too"},
      {"ffn_up_exps=CPU", "separates blk.0.ffn_gate_exps.weight and blk.0.ffn_up_exps.weight"},
      {"ffn_(up|gate)_exps=CUDA0,exps=CPU",
       "separates blk.0.ffn_gate_exps.weight and blk.0.ffn_down_exps.weight"},
      {"blk.7.*exps=CPU", "finds no tensor of an expert"},
  };
  for (const auto& [wanted, message] : kCases)
    EXPECT_THAT(places({.override_tensor = wanted}), HasSubstr(message)) << wanted;
  open("llama3");
  EXPECT_THAT(places({.n_first = 1}), HasSubstr("n_cpu_moe: ")) << "names the flag";
  EXPECT_THAT(places({.all = true}),
              HasSubstr("expected a mixture of experts, got architecture llama"));
}

TEST_F(ExpertPlacesTest, AsFewLayersAsLeaveRoom) {
  const DeviceBytes bytes{{0, 10, 20, 30}, 100};
  EXPECT_EQ(bytes.all(), 160);
  EXPECT_EQ(describe(fitting_places(bytes, 160)), "none of 4");
  EXPECT_EQ(describe(fitting_places(bytes, 159)), "1 of 4");
  EXPECT_EQ(describe(fitting_places(bytes, 150)), "1 of 4");
  EXPECT_EQ(describe(fitting_places(bytes, 149)), "1-2 of 4");
  EXPECT_EQ(describe(fitting_places(bytes, 0)), "1-3 of 4");
}

// Nearly the file's bytes, and those of experts as experts_offload counts them.
TEST_F(ExpertPlacesTest, BytesAreThoseOfTheFile) {
  for (const char* path : {"mixtral", "mixtral/model.gguf", "deepseek_v3", "gpt_oss"}) {
    SCOPED_TRACE(path);
    open(path);
    const DeviceBytes bytes = device_bytes(*source_, config_);
    int64_t file = 0;
    for (const TensorInfo& tensor : source_->tensors())
      file += static_cast<int64_t>(tensor.bytes.size());
    const auto near = [](int64_t got, int64_t want) {
      EXPECT_GE(got, want - 100);
      EXPECT_LE(static_cast<double>(got), 1.05 * static_cast<double>(want));
    };
    near(bytes.all(), file);
    near(bytes.all() - bytes.others, expert_bytes(*source_, config_));
  }
}

// Layers that predict further tokens are not loaded with the model.
TEST_F(ExpertPlacesTest, BytesAreOfWhatIsLoaded) {
  open("deepseek_v3_mtp");
  const DeviceBytes bytes = device_bytes(*source_, config_);
  int64_t file = 0, further = 0;
  for (const TensorInfo& tensor : source_->tensors()) {
    const auto size = static_cast<int64_t>(tensor.bytes.size());
    file += size;
    if (tensor.name.starts_with(fmt::format("model.layers.{}.", config_.n_layers))) further += size;
  }
  EXPECT_GT(further, 0);
  EXPECT_GE(bytes.all(), file - further - 100);
  EXPECT_LE(static_cast<double>(bytes.all()), 1.05 * static_cast<double>(file - further));
}

}  // namespace
}  // namespace penstock
