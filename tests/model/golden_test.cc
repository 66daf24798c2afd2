// Every architecture against transformers: logits of tiny random checkpoints
// (tools/make_tiny_models.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "formats/weight_source.h"
#include "model/runner.h"
#include "ops/cuda/cuda_ops.h"
#include "support/device_ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::max_difference;
using testing::relative_error;
using testing::Rows;
using testing::Runner;

struct Golden {
  std::vector<int> prompt, decoded;
  Rows logits;  // after each token of both
};

Golden read_golden(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  int32_t header[3] = {};
  file.read(reinterpret_cast<char*>(header), sizeof header);
  Golden golden;
  golden.prompt.resize(header[0]);
  golden.decoded.resize(header[1]);
  file.read(reinterpret_cast<char*>(golden.prompt.data()), header[0] * 4);
  file.read(reinterpret_cast<char*>(golden.decoded.data()), header[1] * 4);
  for (int i = 0; i < header[0] + header[1]; ++i) {
    golden.logits.emplace_back(header[2]);
    file.read(reinterpret_cast<char*>(golden.logits.back().data()), header[2] * 4);
  }
  EXPECT_TRUE(file.good()) << path;
  return golden;
}

struct Case {
  fs::path path;  // the directory or the GGUF file
  fs::path golden;
  std::string name;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  std::vector<Case> result;
  // Or checkpoints of tools/sweep_configurations.py.
  const char* others = std::getenv("PENSTOCK_GOLDEN_MODELS");
  for (const auto& entry : fs::directory_iterator(
           others != nullptr ? fs::path(others) : tests_dir() / "golden" / "models")) {
    const fs::path dir = entry.path();
    std::string name = dir.filename().string();
    std::ranges::replace(name, '.', '_');
    const auto add = [&](const fs::path& golden, const std::string& suffix) {
      result.push_back({dir, golden, name + suffix + "_hf"});
      if (fs::exists(dir / "model.gguf"))
        result.push_back({dir / "model.gguf", golden, name + suffix + "_gguf"});
    };
    add(dir / "golden.bin", "");
    if (fs::exists(dir / "golden_short.bin")) add(dir / "golden_short.bin", "_short");
  }
  std::ranges::sort(result, {}, &Case::name);
  return result;
}

class GoldenModels : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    golden_ = read_golden(GetParam().golden);
    ops_ = make_ops("cpu", {.n_threads = 1}).value();
    auto source = open_weights(GetParam().path);
    ASSERT_TRUE(source) << source.error().message;
    source_ = std::move(source).value();
    auto model = Model::load(*source_, *ops_);
    ASSERT_TRUE(model) << model.error().message;
    model_ = std::move(model).value();
  }

  Rows prompt_logits() const {
    return {golden_.logits.begin(),
            golden_.logits.begin() + static_cast<long>(golden_.prompt.size())};
  }

  // transformers chooses between longrope's factors by the length that it computes.
  Runner runner_of(const Model& model, Ops& ops, CacheTypes types = KvDType::kF32) const {
    return Runner(model, ops, 64, 16, types, static_cast<int>(golden_.logits.size()));
  }

  Golden golden_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<WeightSource> source_;
  std::unique_ptr<Model> model_;
};

constexpr float kTolerance = 1e-3f;

TEST_P(GoldenModels, PromptThenStepByStep) {
  Runner runner = runner_of(*model_, *ops_);
  Rows logits = runner.run(0, golden_.prompt);
  for (const int token : golden_.decoded) logits.push_back(runner.run(0, {&token, 1}).back());
  EXPECT_LE(max_difference(logits, golden_.logits), kTolerance);
  // And the choices are the same.
  Runner again = runner_of(*model_, *ops_);
  EXPECT_EQ(again.greedy(0, golden_.prompt, static_cast<int>(golden_.decoded.size())),
            golden_.decoded);
}

// Every matrix is counted: speeds are held against what is read.
TEST_P(GoldenModels, WeightBytesAreThoseOfAllParameters) {
  const ModelConfig& config = model_->config();
  const int64_t norms_at_most =
      (8 * config.n_layers + 4) * int64_t{std::max(config.model_dim, config.q_dim())};
  const int per_byte = config.rounding.activations ? 4 : 1;  // ternary weights in 2 bits, else F32
  const int64_t least = (config.n_parameters() - norms_at_most) / per_byte;
  EXPECT_GE(model_->weight_bytes(), config.rounding.activations ? least : 4 * least);
}

TEST_P(GoldenModels, ChunkedPrefillEqualsWhole) {
  for (const int chunk : {1, 3, 8, 17}) {
    Runner runner = runner_of(*model_, *ops_);
    Rows logits;
    for (size_t i = 0; i < golden_.prompt.size(); i += chunk) {
      const size_t n = std::min<size_t>(chunk, golden_.prompt.size() - i);
      for (auto& row : runner.run(0, std::span<const int>(golden_.prompt).subspan(i, n)))
        logits.push_back(row);
    }
    EXPECT_LE(max_difference(logits, prompt_logits()), kTolerance) << "chunks of " << chunk;
  }
}

// A backend that computes in fixed sizes has rows beside those that count.
TEST_P(GoldenModels, RowsBeyondTheBatchChangeNothing) {
  const auto ops = make_ops("cpu", {.n_threads = 1, .row_multiple = 8}).value();
  const auto model = Model::load(*source_, *ops).value();
  Runner runner = runner_of(*model, *ops);
  const std::span<const int> prompt = golden_.prompt;
  Rows logits = runner.run(0, prompt.first(3));
  for (auto& row : runner.run(0, prompt.subspan(3))) logits.push_back(row);
  for (const int token : golden_.decoded) logits.push_back(runner.run(0, {&token, 1}).back());
  EXPECT_LE(max_difference(logits, golden_.logits), kTolerance);
}

// What a step asks for depends on its key alone: played again it gives what computing it anew would
// give.
TEST_P(GoldenModels, StepsCanBeRecordedAndPlayedAgain) {
  DeviceOps ops(make_ops("cpu", {.n_threads = 1}).value());
  const auto model = Model::load(*source_, ops).value();
  Runner runner = runner_of(*model, ops);
  const size_t half = golden_.prompt.size() / 2;
  const std::span<const int> prompt = golden_.prompt;
  Rows logits = runner.run(0, prompt.first(half));
  for (auto& row : runner.run(0, prompt.subspan(half, half))) logits.push_back(row);
  if (prompt.size() > 2 * half) logits.push_back(runner.run(0, prompt.last(1)).back());
  runner.run(1, golden_.prompt);  // another sequence in between
  for (const int token : golden_.decoded) logits.push_back(runner.run(0, {&token, 1}).back());
  EXPECT_LE(max_difference(logits, golden_.logits), kTolerance);
  EXPECT_LE(ops.n_recorded(), 3);
  EXPECT_GE(ops.n_replayed(), static_cast<int>(golden_.decoded.size()));
}

// The kernels for GPUs, on fibers; with rows beside those that count. Of GGUF files the prompt, which
// every weight takes part in: that they decode alike, the directory of the same model shows
// (thorough: both).
TEST_P(GoldenModels, EmulatedCudaGivesTheSame) {
  const auto made = make_ops("cuda_emulated", {.n_threads = 1, .row_multiple = 4});
  if (!made) GTEST_SKIP() << made.error().message;
  const auto model = Model::load(*source_, **made);
  if (!model_->config().needs_all().empty()) {
    ASSERT_FALSE(model);
    EXPECT_NE(model.error().message.find("expected backend cpu"), std::string::npos)
        << model.error().message;
    return;
  }
  ASSERT_TRUE(model) << model.error().message;
  Runner runner = runner_of(**model, **made);
  const std::span<const int> prompt = golden_.prompt;
  Rows logits = runner.run(0, prompt.first(5));
  for (auto& row : runner.run(0, prompt.subspan(5))) logits.push_back(row);
  if (GetParam().path.extension() == ".gguf" && !thorough()) {
    EXPECT_LE(max_difference(logits, prompt_logits()), kTolerance);
    return;
  }
  for (const int token : golden_.decoded) logits.push_back(runner.run(0, {&token, 1}).back());
  EXPECT_LE(max_difference(logits, golden_.logits), kTolerance);
  // All but the first were recorded and played.
  EXPECT_GE(static_cast<cuda::CudaOps&>(**made).graphs().n_played(),
            static_cast<int64_t>(golden_.decoded.size()) - 1);
  // Caches of 16 bits, of heads that kernels of their own take: beside the CPU's, which rounds keys
  // and values alike, and batch-invariant nothing else.
  if (model_->config().head_dim % 16 != 0 || model_->config().latent.kv_rank > 0) return;
  const auto halves = [&](const Model& of, Ops& ops) {
    Runner with = runner_of(of, ops, KvDType::kF16);
    Rows rows = with.run(0, prompt.first(5));
    for (auto& row : with.run(0, prompt.subspan(5))) rows.push_back(row);
    for (const int token : std::span(golden_.decoded).first(2))
      rows.push_back(with.run(0, {&token, 1}).back());
    return rows;
  };
  const auto exact = make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value();
  const auto same = Model::load(*source_, *exact);
  ASSERT_TRUE(same) << same.error().message;
  const Rows got = halves(**model, **made), on_cpu = halves(**same, *exact);
  EXPECT_LE(relative_error(got, on_cpu), 2e-3);
}

TEST_P(GoldenModels, RaggedBatchEqualsAlone) {
  Runner runner = runner_of(*model_, *ops_);
  // Three sequences over the same tokens, out of step: prefill, decode and a chunk share batches.
  const std::span<const int> prompt = golden_.prompt;
  const auto part = [&](int seq, size_t from, size_t to) {
    return Runner::Part{
        seq, {prompt.begin() + static_cast<long>(from), prompt.begin() + static_cast<long>(to)}};
  };
  const auto expect = [&](const Rows& got, size_t at, size_t from, size_t to) {
    const Rows a(got.begin() + static_cast<long>(at),
                 got.begin() + static_cast<long>(at + to - from));
    const Rows b(golden_.logits.begin() + static_cast<long>(from),
                 golden_.logits.begin() + static_cast<long>(to));
    EXPECT_LE(max_difference(a, b), kTolerance) << from << ".." << to;
  };
  const size_t n = prompt.size();
  Rows got = runner.step({part(7, 0, n - 2), part(2, 0, 1)});
  expect(got, 0, 0, n - 2);
  expect(got, n - 2, 0, 1);
  got = runner.step({part(2, 1, 4), part(7, n - 2, n - 1), part(5, 0, n / 2)});
  expect(got, 0, 1, 4);
  expect(got, 3, n - 2, n - 1);
  expect(got, 4, 0, n / 2);
  got = runner.step({part(5, n / 2, n), part(2, 4, 5), part(7, n - 1, n)});
  expect(got, 0, n / 2, n);
  expect(got, n - n / 2, 4, 5);
  expect(got, n - n / 2 + 1, n - 1, n);
}

// A prompt that is one step is computed in F32 from the zeros that it begins with. Later tokens
// begin with what rounding left, 8 bits of every number: some percent of such random logits, and
// with experts, of which another one may be chosen, what keys and values in BF16 may cost.
void expect_states_in_bf16_near(const Model& model, Ops& ops, const Golden& golden) {
  const double most = model.config().experts.count > 0 ? 0.2 : 0.05;
  const auto begin = golden.logits.begin(),
             middle = begin + static_cast<long>(golden.prompt.size());
  const Rows of_prompt(begin, middle), of_decoded(middle, golden.logits.end());
  Runner runner(model, ops, 64, 16, {KvDType::kF32, StateDType::kBF16},
                static_cast<int>(golden.logits.size()));
  EXPECT_LE(max_difference(runner.run(0, golden.prompt), of_prompt), kTolerance);
  Rows decoded, stepwise;
  for (const int token : golden.decoded) decoded.push_back(runner.run(0, {&token, 1}).back());
  EXPECT_LE(relative_error(decoded, of_decoded), most);
  for (const int token : golden.prompt) stepwise.push_back(runner.run(1, {&token, 1}).back());
  EXPECT_LE(relative_error(stepwise, of_prompt), most);
}

TEST_P(GoldenModels, EveryTypeOfCacheIsNear) {
  if (model_->config().has_states()) expect_states_in_bf16_near(*model_, *ops_, golden_);
  // Units that multiply BF16 have keys and values of any 16 bits as BF16.
  const std::string_view name = ops_->name();
  const double of_halves = name.starts_with("cpu/amx") || name == "cpu/avx512bf16" ? 0.2 : 0.05;
  // With few tokens selected, one that rounding exchanges matters.
  const bool selects = model_->config().indexer().top_k > 0;
  std::vector<std::pair<KvDType, double>> types = {{KvDType::kF32, 1e-4},
                                                   {KvDType::kF16, of_halves},
                                                   {KvDType::kBF16, 0.2},
                                                   {KvDType::kI8, selects ? 0.5 : 0.3}};
  // Heads of these models have few features, which a rotation spreads little.
  const CacheSpec spec = model_->cache_spec(KvDType::kI4, 16);
  if (ops_->can_cache(KvDType::kI4) && spec.first_index_layer == 0 && spec.first_entry_layer == 0)
    types.emplace_back(KvDType::kI4, 0.8);
  // Norms of few features that experts computed amplify rounding; that of int4 beyond any bound.
  if (model_->config().experts.normed_latent)
    types = {types[0], types[1], {KvDType::kBF16, 0.8}, {KvDType::kI8, 0.8}};
  for (const auto& [dtype, most] : types) {
    Runner runner = runner_of(*model_, *ops_, dtype);
    Rows logits = runner.run(0, golden_.prompt);
    for (const int token : golden_.decoded) logits.push_back(runner.run(0, {&token, 1}).back());
    EXPECT_LE(relative_error(logits, golden_.logits), most) << static_cast<int>(dtype);
  }
}

TEST_P(GoldenModels, EarlyExitIsTheShorterModel) {
  Runner one = runner_of(*model_, *ops_), all = runner_of(*model_, *ops_);
  const Rows early = one.step({{0, golden_.prompt}}, {.n_layers = 1});
  const Rows explicit_all =
      all.step({{0, golden_.prompt}}, {.n_layers = model_->config().n_layers});
  EXPECT_GT(max_difference(early, prompt_logits()), 0.05f);
  EXPECT_LE(max_difference(explicit_all, prompt_logits()), kTolerance);
}

// Experts as published, and as llama.cpp's converter lays them out: the same codes. Their products
// round activations to 8 bits, which transformers does not.
TEST(Mxfp4, ExpertsAreTakenAsTheyLie) {
  const fs::path dir = tests_dir() / "golden" / "mxfp4" / "gpt_oss";
  const Golden golden = read_golden(dir / "golden.bin");
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  const auto logits_of = [&](const fs::path& path) {
    const auto source = open_weights(path).value();
    const auto model = Model::load(*source, *ops);
    EXPECT_TRUE(model) << model.error().message;
    return Runner(**model, *ops).run(0, golden.prompt);
  };
  const Rows directory = logits_of(dir), gguf = logits_of(dir / "model.gguf");
  const Rows expected(golden.logits.begin(),
                      golden.logits.begin() + static_cast<long>(golden.prompt.size()));
  EXPECT_EQ(directory, gguf);
  EXPECT_LE(max_difference(directory, expected), 0.1f);
}

// DeepSeek V4 as published: FP8 in blocks with scales that are powers of two, and experts as above.
TEST(Mxfp4, DeepSeekV4IsReadAsPublished) {
  const fs::path dir = tests_dir() / "golden" / "mxfp4" / "deepseek_v4";
  const Golden golden = read_golden(dir / "golden.bin");
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  const auto source = open_weights(dir).value();
  const auto model = Model::load(*source, *ops);
  ASSERT_TRUE(model) << model.error().message;
  const Rows expected(golden.logits.begin(),
                      golden.logits.begin() + static_cast<long>(golden.prompt.size()));
  EXPECT_LE(relative_error(Runner(**model, *ops).run(0, golden.prompt), expected), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenModels, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
