// Whisper against transformers: what its decoder makes of an encoder's rows (tools/make_tiny_whisper.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "formats/weight_source.h"
#include "model/runner.h"
#include "model/towers/tower.h"
#include "support/device_ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::max_difference;
using testing::Rows;
using testing::Runner;

constexpr float kNear = 1e-3f;

struct WhisperGolden {
  std::vector<int> prompt, decoded;
  std::vector<float> encoded;
  Rows logits;  // after each token of both
};

template <class T>
std::vector<T> read_numbers(std::ifstream& file, int64_t n) {
  std::vector<T> numbers(static_cast<size_t>(n));
  file.read(reinterpret_cast<char*>(numbers.data()), n * static_cast<int64_t>(sizeof(T)));
  return numbers;
}

WhisperGolden read_whisper_golden(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const auto sizes = read_numbers<int32_t>(file, 5);
  WhisperGolden golden;
  golden.prompt = read_numbers<int>(file, sizes[0]);
  golden.decoded = read_numbers<int>(file, sizes[1]);
  golden.encoded = read_numbers<float>(file, int64_t{sizes[3]} * sizes[4]);
  for (int i = 0; i < sizes[0] + sizes[1]; ++i)
    golden.logits.push_back(read_numbers<float>(file, sizes[2]));
  EXPECT_TRUE(file.good()) << path;
  return golden;
}

class WhisperModels : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    dir_ = tests_dir() / "golden" / "whisper" / GetParam();
    golden_ = read_whisper_golden(dir_ / "logits.bin");
    source_ = open_weights(dir_).value();
    ops_ = make_ops("cpu", {.n_threads = 1}).value();
    auto model = Model::load(*source_, *ops_);
    ASSERT_TRUE(model) << model.error().message;
    model_ = *std::move(model);
  }

  // The logits of the prompt, in steps of `chunk` tokens, then of one token after the other.
  Rows all_logits(Runner& runner, int seq, size_t chunk) const {
    runner.set_encoded(seq, golden_.encoded);
    Rows logits;
    const std::span<const int> prompt = golden_.prompt;
    for (size_t i = 0; i < prompt.size(); i += chunk) {
      for (auto& row : runner.run(seq, prompt.subspan(i, std::min(chunk, prompt.size() - i))))
        logits.push_back(row);
    }
    for (const int token : golden_.decoded) logits.push_back(runner.run(seq, {&token, 1}).back());
    return logits;
  }

  fs::path dir_;
  WhisperGolden golden_;
  std::unique_ptr<WeightSource> source_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
};

TEST_P(WhisperModels, LogitsAreThoseOfTransformers) {
  for (const size_t chunk : {size_t{1}, size_t{3}, golden_.prompt.size()}) {
    Runner runner(*model_, *ops_, 8);
    EXPECT_LE(max_difference(all_logits(runner, 0, chunk), golden_.logits), kNear) << chunk;
  }
}

TEST_P(WhisperModels, LogitsDependOnTheRows) {
  Runner runner(*model_, *ops_, 8);
  for (float& value : golden_.encoded) value = -value;
  EXPECT_GT(max_difference(all_logits(runner, 0, 8), golden_.logits), 0.1f);
}

// Sequences with other rows, which begin and go on in the same steps, change nothing; with one
// family of kernels not a bit.
TEST_P(WhisperModels, SequencesOfAStepHaveTheirOwnRows) {
  const auto ops = make_ops("cpu", {.n_threads = 2, .batch_invariant = true}).value();
  const auto model = Model::load(*source_, *ops).value();
  Runner alone(*model, *ops, 8);
  const Rows expected = all_logits(alone, 0, golden_.prompt.size());
  Runner runner(*model, *ops, 8);
  std::vector<float> others = golden_.encoded;
  std::ranges::reverse(others);
  runner.set_encoded(0, others), runner.set_encoded(1, golden_.encoded);
  runner.set_encoded(2, others);
  runner.step({{0, {1, 2, 3}}});
  const int n = static_cast<int>(golden_.prompt.size());
  Rows rows = runner.step({{0, {4}}, {1, golden_.prompt}, {2, {5, 6}}});
  Rows logits(rows.begin() + 1, rows.begin() + 1 + n);
  for (const int token : golden_.decoded) {
    rows = runner.step({{0, {7}}, {2, {8}}, {1, {token}}});
    logits.push_back(rows.back());
  }
  EXPECT_EQ(logits, expected);
  EXPECT_LE(max_difference(logits, golden_.logits), kNear);
}

// States in 16 bits are half as long.
TEST_P(WhisperModels, StatesMayBeShort) {
  Runner runner(*model_, *ops_, 8, 16, {KvDType::kF32, StateDType::kBF16});
  const Rows logits = all_logits(runner, 0, golden_.prompt.size());
  EXPECT_LE(testing::relative_error(logits, golden_.logits), 0.02);
  EXPECT_EQ(2 * model_->cache_spec({KvDType::kF32, StateDType::kBF16}, 16).state_bytes(),
            model_->cache_spec({KvDType::kF32, StateDType::kF32}, 16).state_bytes());
}

TEST_P(WhisperModels, StepsCanBeRecordedAndPlayedAgain) {
  DeviceOps ops(make_ops("cpu", {.n_threads = 1, .row_multiple = 4}).value());
  const auto model = Model::load(*source_, ops).value();
  Runner runner(*model, ops, 8);
  EXPECT_LE(max_difference(all_logits(runner, 0, golden_.prompt.size()), golden_.logits), kNear);
  EXPECT_LE(max_difference(all_logits(runner, 1, golden_.prompt.size()), golden_.logits), kNear);
  EXPECT_LE(ops.n_recorded(), 2);
}

TEST_P(WhisperModels, BackendsWithoutCrossAttentionRefuseIt) {
  class Blind : public DeviceOps {
   public:
    using DeviceOps::DeviceOps;
    bool can_cross_attend() const override { return false; }
  };
  Blind ops(make_ops("cpu", {.n_threads = 1}).value());
  const auto model = Model::load(*source_, ops);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(model.error().message.find("expected backend cpu"), std::string::npos)
      << model.error().message;
}

TEST_P(WhisperModels, TheEncoderGivesTheRows) {
  std::ifstream file(dir_ / "tower.bin", std::ios::binary);
  const auto sizes = read_numbers<int32_t>(file, 5);
  const auto frames = read_numbers<float>(file, int64_t{sizes[1]} * sizes[2]);
  const auto rows = read_numbers<float>(file, int64_t{sizes[3]} * sizes[4]);
  ASSERT_TRUE(file.good());
  const auto tower = Tower::load(*source_, *ops_, TowerSense::kHearing);
  ASSERT_TRUE(tower) << tower.error().message;
  ASSERT_NE(*tower, nullptr);
  // The convolutions read one frame behind the last one.
  std::vector<float> padded = frames;
  padded.resize(padded.size() + static_cast<size_t>(sizes[2]));
  const auto made = (*tower)->encode({padded, {1, 1, sizes[0]}}, *ops_);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->n_tokens, sizes[3]);
  EXPECT_LE(max_difference({made->rows}, {rows}), kNear);
  EXPECT_EQ((*tower)->config().text_dim, model_->config().model_dim);
  EXPECT_EQ(made->n_tokens, model_->config().encoder_rows);
}

INSTANTIATE_TEST_SUITE_P(All, WhisperModels, ::testing::Values("multilingual", "english"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace penstock
