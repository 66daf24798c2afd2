// Copies of the host's experts on CUDA's emulated device: whichever experts have one, and whenever
// that changes, results are those of the places without copies; in batch-invariant runs they are the
// bits of a device that has all experts.
#include <gtest/gtest.h>

#include "emulation/cuda/trouble.h"
#include "formats/lora.h"
#include "model/mixtures.h"
#include "model/runner.h"
#include "ops/cuda/cuda_ops.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::drawn_places;
using testing::max_difference;
using testing::MixtureCase;
using testing::mixtures_for_devices;
using testing::Rows;
using testing::Runner;

constexpr int64_t kAllRoom = int64_t{1} << 40;

struct Loaded {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;

  cuda::CudaOps& cuda() const { return static_cast<cuda::CudaOps&>(*ops); }
};

// places: layers whose experts are the host's, with twins.
Loaded load(const WeightSource& source, const std::vector<bool>& places, bool invariant) {
  Loaded loaded{
      make_ops("cuda_emulated", {.n_threads = 1, .batch_invariant = invariant, .row_multiple = 4})
          .value(),
      nullptr};
  ShardLoad how;
  how.packed.host_experts = places;
  loaded.ops->keep_twins(true);
  auto model = Model::load_shard(source, *loaded.ops, {}, how);
  EXPECT_TRUE(model) << model.error().message;
  loaded.model = std::move(model).value();
  return loaded;
}

std::vector<int> tokens_of(int n, int vocab_size, uint64_t seed = 5) {
  std::vector<int> all;
  for (int i = 0; i < n; ++i)
    all.push_back(static_cast<int>(mix_seed(seed, static_cast<uint64_t>(i)) %
                                   static_cast<uint64_t>(vocab_size)));
  return all;
}

// A prompt in two parts, then tokens one by one.
Rows run(Runner& runner, int vocab_size) {
  const std::vector<int> all = tokens_of(17, vocab_size);
  Rows logits = runner.run(0, std::span(all).first(4));
  for (auto& row : runner.run(0, std::span(all).subspan(4, 7))) logits.push_back(row);
  for (size_t i = 11; i < all.size(); ++i)
    logits.push_back(runner.run(0, std::span(all).subspan(i, 1)).back());
  return logits;
}

Rows run(const Loaded& loaded, int vocab_size) {
  Runner runner(*loaded.model, *loaded.ops);
  return run(runner, vocab_size);
}

class HotExpertsTest : public ::testing::TestWithParam<MixtureCase> {
 protected:
  void SetUp() override {
    if (const auto made = make_ops("cuda_emulated", {.n_threads = 1}); !made)
      GTEST_SKIP() << made.error().message;
    source_ = open_weights(GetParam().path).value();
    config_ = read_config(*source_).value();
  }
  Rows run(const Loaded& loaded) const { return penstock::run(loaded, config_.vocab_size); }
  uint64_t seed() const { return GetParam().name.size(); }

  std::unique_ptr<WeightSource> source_;
  ModelConfig config_;
};

// Other layers on the host, room for two experts or for all, experts that leave at any step.
TEST_P(HotExpertsTest, SameBitsWhereverExpertsAre) {
  const Rows want = run(load(*source_, {}, true));
  std::vector<bool> layers(static_cast<size_t>(config_.n_layers));
  for (size_t i = 0; i < layers.size(); ++i) layers[i] = config_.layers[i].moe;
  const std::vector<bool> places[] = {drawn_places(seed(), config_), layers};
  // The same computation from a GGUF file: once.
  for (size_t i = GetParam().name.ends_with("_gguf") ? 1 : 0; i < 2; ++i) {
    const Loaded loaded = load(*source_, places[i], true);
    EXPECT_EQ(run(loaded), want) << "room for two";
    const ExpertTraffic before = loaded.ops->expert_traffic();
    EXPECT_GT(before.moves, 0);
    EXPECT_GT(loaded.ops->set_expert_room(kAllRoom), 0);
    loaded.cuda().hot_experts().draw(seed() + i + 1);
    EXPECT_EQ(run(loaded), want) << "experts leave";
    loaded.cuda().hot_experts().draw(0);
    EXPECT_EQ(run(loaded), want) << "room for all";
    const int64_t moves = loaded.ops->expert_traffic().moves;
    EXPECT_EQ(run(loaded), want);
    EXPECT_EQ(loaded.ops->expert_traffic().moves, moves) << "all that are chosen are there";
  }
}

// Of directories: the GGUF files of the same models are computed alike.
class HotExpertsInBatches : public HotExpertsTest {};

TEST_P(HotExpertsInBatches, SameBitsWhateverTheBatch) {
  const Loaded loaded = load(*source_, drawn_places(seed() + 1, config_), true);
  testing::expect_same_bits_in_batches(*loaded.model, *loaded.ops,
                                       tokens_of(15, config_.vocab_size));
}

// Experts come and go while steps are recorded and played.
TEST_P(HotExpertsTest, GiveWhatTheCpuGivesWhileExpertsMove) {
  const auto cpu = make_ops("cpu", {.n_threads = 1}).value();
  const Loaded on_cpu{nullptr, Model::load(*source_, *cpu).value()};
  Runner runner(*on_cpu.model, *cpu);
  const std::vector<int> all = tokens_of(17, config_.vocab_size);
  const Rows want = runner.run(0, all);
  const Loaded loaded = load(*source_, drawn_places(seed(), config_), false);
  // Products of MXFP4 by the CPU round activations to 8 bits.
  const float most = GetParam().name.starts_with("mxfp4") ? 0.1f : 1e-3f;
  EXPECT_LE(max_difference(run(loaded), want), most) << "no copies";
  EXPECT_EQ(loaded.ops->expert_traffic().hits, 0);
  EXPECT_GT(loaded.ops->set_expert_room(kAllRoom), 0);
  for (uint64_t round = 0; round < 3; ++round) {
    loaded.cuda().hot_experts().draw(round < 2 ? seed() + round + 1 : 0);
    EXPECT_LE(max_difference(run(loaded), want), most) << round;
  }
  const ExpertTraffic traffic = loaded.ops->expert_traffic();
  EXPECT_GT(traffic.hits, 0);
  EXPECT_GT(traffic.moves, 0);
  EXPECT_GT(traffic.choices, traffic.hits);
  EXPECT_GE(loaded.cuda().graphs().n_played(), 3);
}

// All mixtures with PENSTOCK_THOROUGH=1, else directories of every sixth.
std::vector<MixtureCase> some_mixtures(bool gguf) {
  const std::vector<MixtureCase> all = mixtures_for_devices(gguf && thorough());
  std::vector<MixtureCase> some;
  for (size_t i = 0; i < all.size(); i += thorough() ? 1 : 6) some.push_back(all[i]);
  return some;
}

INSTANTIATE_TEST_SUITE_P(Tiny, HotExpertsTest, ::testing::ValuesIn(some_mixtures(true)),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Tiny, HotExpertsInBatches, ::testing::ValuesIn(some_mixtures(false)),
                         [](const auto& info) { return info.param.name; });

class HotExperts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto made = make_ops("cuda_emulated", {.n_threads = 1}); !made)
      GTEST_SKIP() << made.error().message;
    source_ = open_weights(tests_dir() / "golden" / "models" / "mixtral").value();
    config_ = read_config(*source_).value();
  }
  void TearDown() override { cuda::fail_emulated_call(0); }

  Loaded load(bool invariant) const { return penstock::load(*source_, {true, true}, invariant); }
  Rows run(const Loaded& loaded) const { return penstock::run(loaded, config_.vocab_size); }

  std::unique_ptr<WeightSource> source_;
  ModelConfig config_;
};

// One sequence has an adapter of experts, the other has none.
TEST_F(HotExperts, AdaptersGiveTheSameBits) {
  const auto adapter =
      open_lora(tests_dir() / "golden" / "lora" / "mixtral.each" / "together").value();
  const std::vector<int> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
  const std::vector<Runner::Part> parts = {{0, tokens, 1}, {1, tokens, -1}};
  const auto step = [&](const Loaded& loaded) {
    EXPECT_TRUE(loaded.model->put_adapter(1, adapter, *loaded.ops));
    return Runner(*loaded.model, *loaded.ops).step(parts);
  };
  const Rows want = step(penstock::load(*source_, {}, true));
  const Loaded loaded = load(true);
  EXPECT_EQ(step(loaded), want) << "room for two";
  (void)loaded.ops->set_expert_room(kAllRoom);
  EXPECT_EQ(step(loaded), want) << "room for all";
  EXPECT_GT(max_difference({want.begin(), want.begin() + 8}, {want.begin() + 8, want.end()}),
            1e-2f);
  // Where bits may depend on places, the host computes steps with adapters.
  const Loaded faster = load(false);
  EXPECT_LE(max_difference(step(faster), want), 1e-3f);
  (void)faster.ops->set_expert_room(kAllRoom);
  faster.cuda().hot_experts().draw(3);
  EXPECT_LE(max_difference(step(faster), want), 1e-3f);
}

// The device keeps what is chosen again and again, within its room.
TEST_F(HotExperts, ThoseUsedMostStay) {
  const Loaded loaded = load(false);
  (void)run(loaded);
  const int64_t all = loaded.ops->set_expert_room(kAllRoom);
  // Room for a half of them.
  const int64_t half = loaded.ops->set_expert_room(all / 2);
  ASSERT_EQ(half, all / 2);
  Runner runner(*loaded.model, *loaded.ops);
  const std::vector<int> token = {7};
  ExpertTraffic before;
  for (int i = 0; i < 60; ++i) {
    if (i == 50) before = loaded.ops->expert_traffic();
    (void)runner.run(0, token);
  }
  const ExpertTraffic after = loaded.ops->expert_traffic();
  EXPECT_GE(2 * (after.hits - before.hits), after.choices - before.choices);
  EXPECT_GT(after.moves, 0);
  EXPECT_EQ(after.room, half);
}

// Prompts try both ways, the first of them through the device with four slots for all experts.
TEST_F(HotExperts, PromptsGoThroughTheDevice) {
  const auto cpu = make_ops("cpu", {.n_threads = 1}).value();
  const auto on_cpu = Model::load(*source_, *cpu).value();
  const std::vector<int> prompt = tokens_of(270, config_.vocab_size);
  const Rows want = Runner(*on_cpu, *cpu).run(0, prompt);
  const Loaded loaded = load(false);
  EXPECT_LE(max_difference(Runner(*loaded.model, *loaded.ops).run(0, prompt), want), 1e-3f);
  EXPECT_GT(loaded.ops->expert_traffic().moves, 0);
  (void)loaded.ops->set_expert_room(kAllRoom);
  loaded.cuda().hot_experts().draw(9);
  for (int round = 0; round < 3; ++round) {
    EXPECT_LE(max_difference(Runner(*loaded.model, *loaded.ops).run(0, prompt), want), 1e-3f);
    EXPECT_LE(max_difference(run(loaded), run(load(false))), 1e-3f);
  }
}

TEST(MeasuredWays, TheFasterIsTaken) {
  using cuda::MeasuredWay;
  MeasuredWay way;
  const auto took = [&](MeasuredWay::Way which, int n_rows, double seconds) {
    EXPECT_EQ(way.choose(n_rows), which);
    way.took(which, n_rows, std::chrono::duration<double>(seconds));
  };
  took(MeasuredWay::kOnDevice, 300, 2.0);
  took(MeasuredWay::kOnHost, 300, 1.0);
  took(MeasuredWay::kOnHost, 400, 1.0);
  // Of other sizes nothing is known.
  took(MeasuredWay::kOnDevice, 600, 1.0);
  took(MeasuredWay::kOnHost, 600, 2.0);
  took(MeasuredWay::kOnDevice, 600, 1.0);
  int n_tried = 0;
  for (int i = 0; i < 600; ++i) n_tried += way.choose(300) == MeasuredWay::kOnDevice ? 1 : 0;
  EXPECT_EQ(n_tried, 2);
}

// Memory that is refused while an expert moves costs nothing: what there is has to do.
TEST_F(HotExperts, RefusedMovesLoseNothing) {
  const Loaded loaded = load(false);
  const Rows want = run(loaded);
  (void)loaded.ops->set_expert_room(kAllRoom);
  for (int64_t n = 1; n <= 6; ++n) {
    loaded.cuda().hot_experts().draw(static_cast<uint64_t>(n));
    Runner runner(*loaded.model, *loaded.ops);
    cuda::fail_emulated_call(n, cuda::EmulatedCalls::kMemory);
    EXPECT_LE(max_difference(penstock::run(runner, config_.vocab_size), want), 1e-3f) << n;
    EXPECT_TRUE(loaded.ops->status()) << n;
    cuda::fail_emulated_call(0);
    (void)loaded.ops->set_expert_room(kAllRoom);
  }
}

// In batch-invariant runs a step without memory for any expert fails as one without memory for its
// activations does, and the next one has the same bits.
TEST_F(HotExperts, RefusedTurnsLoseNothing) {
  const Rows want = run(penstock::load(*source_, {}, true));
  int n_refused = 0;
  for (int64_t n = 1; n <= 24; ++n) {
    const Loaded loaded = load(true);
    if (n % 2 == 0) {
      EXPECT_EQ(run(loaded), want);
    }
    if (n % 3 == 0) (void)loaded.ops->set_expert_room(kAllRoom);
    loaded.cuda().hot_experts().draw(static_cast<uint64_t>(n));
    {
      Runner runner(*loaded.model, *loaded.ops);
      cuda::fail_emulated_call(n, cuda::EmulatedCalls::kMemory);
      (void)runner.run(0, tokens_of(11, config_.vocab_size));
      cuda::fail_emulated_call(0);
    }
    if (const Status status = loaded.ops->status(); !status) {
      ++n_refused;
      EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
      ASSERT_TRUE(loaded.ops->recover()) << n;
    }
    EXPECT_EQ(run(loaded), want) << n;
  }
  EXPECT_GT(n_refused, 0);
}

}  // namespace
}  // namespace penstock
