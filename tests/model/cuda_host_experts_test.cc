// Mixtures on CUDA's emulated device some of whose layers have their experts on the host: every
// tiny mixture, with places drawn at random, gives what the CPU gives.
#include <gtest/gtest.h>

#include <filesystem>

#include "formats/lora.h"
#include "formats/weight_source.h"
#include "kernels/philox.h"
#include "model/arch/read_config.h"
#include "model/mixtures.h"
#include "model/runner.h"
#include "ops/cuda/cuda_ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::drawn_places;
using testing::max_difference;
using testing::MixtureCase;
using testing::mixtures_for_devices;
using testing::Rows;
using testing::Runner;

class HostExpertsTest : public ::testing::TestWithParam<MixtureCase> {
 protected:
  void SetUp() override {
    if (const auto made = make_ops("cuda_emulated", {.n_threads = 1}); !made)
      GTEST_SKIP() << made.error().message;
    source_ = open_weights(GetParam().path).value();
    config_ = read_config(*source_).value();
  }
  struct Loaded {
    std::unique_ptr<Ops> ops;
    std::unique_ptr<Model> model;
  };
  Loaded load(const std::vector<bool>& places, bool invariant = false) const {
    Loaded loaded{
        make_ops("cuda_emulated", {.n_threads = 1, .batch_invariant = invariant, .row_multiple = 4})
            .value(),
        nullptr};
    ShardLoad how;
    how.packed.host_experts = places;
    auto model = Model::load_shard(*source_, *loaded.ops, {}, how);
    EXPECT_TRUE(model) << model.error().message;
    loaded.model = std::move(model).value();
    return loaded;
  }
  std::vector<int> tokens(int n) const {
    std::vector<int> all;
    for (int i = 0; i < n; ++i)
      all.push_back(static_cast<int>(mix_seed(5, static_cast<uint64_t>(i)) %
                                     static_cast<uint64_t>(config_.vocab_size)));
    return all;
  }
  // A prompt in two parts, then tokens one by one.
  Rows run(const Model& model, Ops& ops) const {
    const std::vector<int> all = tokens(15);
    Runner runner(model, ops);
    Rows logits = runner.run(0, std::span(all).first(4));
    for (auto& row : runner.run(0, std::span(all).subspan(4, 7))) logits.push_back(row);
    for (size_t i = 11; i < all.size(); ++i)
      logits.push_back(runner.run(0, std::span(all).subspan(i, 1)).back());
    return logits;
  }

  std::unique_ptr<WeightSource> source_;
  ModelConfig config_;
};

TEST_P(HostExpertsTest, GiveWhatTheCpuGives) {
  const auto cpu = make_ops("cpu", {.n_threads = 1}).value();
  const auto on_cpu = Model::load(*source_, *cpu).value();
  const Rows want = run(*on_cpu, *cpu);
  const std::vector<bool> places = drawn_places(GetParam().name.size(), config_);
  const Loaded loaded = load(places);
  EXPECT_FALSE(loaded.model->host_experts().empty());
  // Products of MXFP4 by the CPU round activations to 8 bits.
  const float most = GetParam().name.starts_with("mxfp4") ? 0.1f : 1e-3f;
  EXPECT_LE(max_difference(run(*loaded.model, *loaded.ops), want), most);
  // Single tokens are recorded and played around the host's part.
  EXPECT_GE(static_cast<cuda::CudaOps&>(*loaded.ops).graphs().n_played(), 3);
}

// Of directories: the GGUF files of the same models are computed alike.
class HostExpertsInBatches : public HostExpertsTest {};

// Whatever the batch, by the same places: several sequences in a step, recorded or not.
TEST_P(HostExpertsInBatches, SameBitsWhateverTheBatch) {
  const Loaded loaded = load(drawn_places(GetParam().name.size() + 1, config_), true);
  testing::expect_same_bits_in_batches(*loaded.model, *loaded.ops, tokens(15));
}

INSTANTIATE_TEST_SUITE_P(Tiny, HostExpertsTest, ::testing::ValuesIn(mixtures_for_devices(true)),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Tiny, HostExpertsInBatches,
                         ::testing::ValuesIn(mixtures_for_devices(false)),
                         [](const auto& info) { return info.param.name; });

TEST(HostExperts, AdaptersOfExpertsAreThere) {
  const auto ops = make_ops("cuda_emulated", {.n_threads = 1});
  if (!ops) GTEST_SKIP() << ops.error().message;
  const fs::path golden = tests_dir() / "golden";
  const auto cpu = make_ops("cpu", {.n_threads = 1}).value();
  const auto adapter = open_lora(golden / "lora" / "mixtral.each" / "together").value();
  const auto source = open_weights(golden / "models" / "mixtral").value();
  ShardLoad how;
  how.packed.host_experts = {false, true};
  const auto model = Model::load_shard(*source, **ops, {}, how).value();
  const auto on_cpu = Model::load(*source, *cpu).value();
  ASSERT_TRUE(model->put_adapter(1, adapter, **ops));
  ASSERT_TRUE(on_cpu->put_adapter(1, adapter, *cpu));
  const std::vector<int> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
  // One sequence has the adapter, the other has none.
  const std::vector<Runner::Part> parts = {{0, tokens, 1}, {1, tokens, -1}};
  const Rows got = Runner(*model, **ops).step(parts), want = Runner(*on_cpu, *cpu).step(parts);
  EXPECT_LE(max_difference(got, want), 1e-3f);
  EXPECT_GT(max_difference({want.begin(), want.begin() + 8}, {want.begin() + 8, want.end()}),
            1e-2f);
}

// By name: models without experts, and backends that have no host beside them.
TEST(HostExperts, WhatCannotBePlacedIsRefused) {
  const fs::path models = tests_dir() / "golden" / "models";
  ShardLoad how;
  how.packed.host_experts = {true, true};
  const auto ops = make_ops("cuda_emulated", {.n_threads = 1});
  if (!ops) GTEST_SKIP() << ops.error().message;
  const auto dense = open_weights(models / "llama3").value();
  auto model = Model::load_shard(*dense, **ops, {}, how);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kInvalidArgument);
  const auto cpu = make_ops("cpu", {.n_threads = 1}).value();
  const auto mixture = open_weights(models / "mixtral").value();
  model = Model::load_shard(*mixture, *cpu, {}, how);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(model.error().message.find("experts on the host: expected one rank of a GPU's backend"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock
