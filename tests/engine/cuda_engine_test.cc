// An engine on the emulated CUDA device: steps that are recorded and played again give what
// computing each anew gives, bit for bit, while batches grow and shrink, sequences part and drafts
// are checked.
#include <gtest/gtest.h>

#include "emulation/cuda/trouble.h"
#include "engine/fake_drafter.h"
#include "engine/model_engine.h"
#include "ops/cuda/cuda_ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

class CudaEngine : public testing::Test {
 protected:
  void SetUp() override {
    auto made = make_ops("cuda_emulated", {.n_threads = 1});
    if (!made) GTEST_SKIP() << made.error().message;
  }
  // Runs the requests with recorded steps and without; the same comes of both. Returns steps that
  // were played.
  static int64_t run_both(const std::vector<Request>& requests, KvDType cache,
                          const std::function<std::shared_ptr<DraftScript>()>& drafts = {}) {
    std::vector<Collected> results[2];
    int64_t n_played = 0;
    for (const bool records : {false, true}) {
      auto ops = make_ops("cuda_emulated", {.n_threads = 1, .eager = !records}).value();
      const cuda::StepGraphs& graphs = static_cast<cuda::CudaOps&>(*ops).graphs();
      std::unique_ptr<Speculation> speculation;
      if (drafts)
        speculation =
            std::make_unique<Speculation>(std::make_unique<FakeDrafter>(drafts()), 4, false);
      // Who comes while steps are not waited for gets other chunks, and few tokens of a cache of 16
      // bits are another kernel's.
      const int most_tokens = cache == KvDType::kF32 ? 48 : 256;
      ModelEngine engine(std::move(ops), {.cache = cache, .most_tokens = most_tokens},
                         std::move(speculation));
      results[records] = engine.run(requests);
      n_played = graphs.n_played();
      EXPECT_TRUE(records || n_played == 0);
    }
    expect_equal(results[0], results[1]);
    return n_played;
  }
};

TEST_F(CudaEngine, RecordedStepsGiveWhatComputedOnesGive) {
  std::vector<Request> requests = requests_of_all_kinds();
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].sampling.max_tokens = static_cast<int>(12 + 2 * i);
  EXPECT_GT(run_both(requests, KvDType::kF16), 10);  // as it is on a GPU
  requests.resize(2);
  EXPECT_GT(run_both(requests, KvDType::kF32), 10);
  EXPECT_GT(run_both(requests, KvDType::kI4), 10);
}

// Layers of few kernels, recorded, against a kernel for each operation, one by one: with fewer
// launches.
TEST_F(CudaEngine, PartsOfLayersInOneGiveWhatTheirOperationsGive) {
  std::vector<Request> requests = requests_of_all_kinds();
  requests.resize(2);
  for (Request& request : requests) request.sampling.max_tokens = 8;
  std::vector<Collected> results[2];
  int64_t launches[2] = {};
  for (const bool fuses : {false, true}) {
    auto ops = make_ops("cuda_emulated", {.n_threads = 1, .eager = true}).value();
    static_cast<cuda::CudaOps&>(*ops).fuse(fuses);
    ModelEngine engine(std::move(ops), {.weights = "q8_0", .cache = KvDType::kF16});
    cuda::fail_emulated_call(0, cuda::EmulatedCalls::kLaunches);
    results[fuses] = engine.run(requests);
    launches[fuses] = cuda::fail_emulated_call(0);
  }
  expect_equal(results[0], results[1]);
  // A GPU, on which this runs too, does not count them.
  EXPECT_TRUE(launches[true] * 4 < launches[false] * 3 || launches[false] == 0);
}

// By the kernels that are launched one by one.
TEST_F(CudaEngine, EnforceEagerRecordsNoStep) {
  int64_t launches[2] = {};
  for (const bool eager : {false, true}) {
    EngineConfig config;
    config.backend = "cuda_emulated";
    config.model = (tests_dir() / "golden" / "models" / "llama2").string();
    config.threads = 1, config.max_num_seqs = 2, config.max_model_len = 48;
    config.kv_cache_memory = int64_t{1} << 20;
    config.enforce_eager = eager;
    const auto engine = Engine::open(config).value();
    cuda::fail_emulated_call(0, cuda::EmulatedCalls::kLaunches);
    Request request = request_of(prompt_of(5), 12);
    request.sampling.ignore_eos = true;
    ASSERT_TRUE(engine->submit(request, std::make_shared<Collector>()));
    while (engine->step()) {
    }
    launches[eager] = cuda::fail_emulated_call(0);
  }
  EXPECT_GT(launches[true], 2 * launches[false]);
}

// What is under way when the host reads a step's tokens has them from the device.
TEST_F(CudaEngine, ARecordedStepDrawsItselfAndIsNotWaitedFor) {
  EngineConfig config;
  config.backend = "cuda_emulated";
  config.model = (tests_dir() / "golden" / "models" / "llama2").string();
  config.threads = 1, config.max_num_seqs = 2, config.max_model_len = 48;
  config.kv_cache_memory = int64_t{1} << 20;
  const auto engine = Engine::open(config).value();
  for (const float temperature : {0.0f, 0.8f}) {
    Request request = request_of(prompt_of(5), 40);
    request.sampling.ignore_eos = true, request.sampling.temperature = temperature;
    request.sampling.seed = 7;
    if (temperature > 0) request.sampling.top_k = 20, request.sampling.logit_bias = {{3, 1.5f}};
    const auto collector = std::make_shared<Collector>();
    ASSERT_TRUE(engine->submit(request, collector));
    for (int i = 0; i < 12; ++i) engine->step();
    const size_t before = collector->result.sequences[0].tokens.size();
    cuda::fail_emulated_call(0, cuda::EmulatedCalls::kLaunches);
    for (int i = 0; i < 20; ++i) engine->step();
    EXPECT_EQ(cuda::fail_emulated_call(0), 0) << temperature;
    EXPECT_EQ(collector->result.sequences[0].tokens.size(), before + 20);
    while (engine->step()) {
    }
  }
}

// Trees of all sizes: some nodes repeat what came before, and may be right.
TEST_F(CudaEngine, DraftsAreCheckedInRecordedStepsToo) {
  const auto drafts = [] {
    auto script = std::make_shared<DraftScript>();
    script->propose = [n = uint64_t{0}](const DraftRequest& request, DraftTree& tree) mutable {
      const auto below = [&](size_t most) { return static_cast<int>(mix_seed(5, n++) % most); };
      const int size = below(static_cast<size_t>(request.max_nodes) + 1);
      for (int node = 0; node < size; ++node)
        tree.add(request.tokens[static_cast<size_t>(below(request.tokens.size()))],
                 below(static_cast<size_t>(node) + 1) - 1);
    };
    return script;
  };
  std::vector<Request> requests = requests_of_all_kinds();
  requests.resize(4);
  for (Request& request : requests) request.sampling.max_tokens = 14;
  EXPECT_GT(run_both(requests, KvDType::kF16, drafts), 5);
  requests.resize(2);
  EXPECT_GT(run_both(requests, KvDType::kF32, drafts), 5);
}

// A cache of 16 bits, as it is on a GPU: tokens of chunks of more than 8 are another kernel's than
// few, and cut anyhow they get the same bits; few the same among themselves. The CPU with such a
// cache, whose sums nothing is rounded for when they are batch-invariant, is what they are near.
TEST_F(CudaEngine, CachesOf16BitsAreExactAmongThemselves) {
  const auto ops = [](const char* backend) { return make_ops(backend, {.n_threads = 1}).value(); };
  std::vector<Request> requests;
  // what is left of them behind chunks, and behind blocks of a prefix, is more than 8
  for (const int n : {47, 77}) {
    requests.push_back(request_of(prompt_of(n, n), 6));
    requests.back().sampling.ignore_eos = true, requests.back().sampling.temperature = 0;
    requests.back().sampling.logprobs = 1;
  }
  const auto one_by_one = [&](ModelEngine& engine) {
    std::vector<Collected> results;
    for (const Request& request : requests) results.push_back(engine.run({request})[0]);
    return results;
  };
  ModelEngine whole(ops("cuda_emulated"), {.cache = KvDType::kF16, .most_tokens = 256});
  const std::vector<Collected> alone = one_by_one(whole);
  {
    SCOPED_TRACE("with the prefixes that are there");
    const std::vector<Collected> again = one_by_one(whole);
    expect_equal(alone, again);
    EXPECT_GE(again[0].sequences.at(0).stats.cached_tokens, 32);
  }
  {
    SCOPED_TRACE("beside each other");
    expect_equal(alone,
                 ModelEngine(ops("cuda_emulated"), {.cache = KvDType::kF16, .most_tokens = 256})
                     .run(requests));
  }
  {
    SCOPED_TRACE("in chunks");
    ModelEngine engine(ops("cuda_emulated"), {.cache = KvDType::kF16, .most_tokens = 17});
    expect_equal(alone, one_by_one(engine));
  }
  for (const auto& [cache, most] : {std::pair{KvDType::kF16, 1e-3f}, {KvDType::kF32, 1e-2f}}) {
    ModelEngine engine(make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value(),
                       {.cache = cache});
    const std::vector<Collected> on_cpu = one_by_one(engine);
    for (size_t i = 0; i < alone.size(); ++i) {
      const Collected::Sequence &a = alone[i].sequences.at(0), &b = on_cpu[i].sequences.at(0);
      EXPECT_EQ(a.tokens, b.tokens) << i;
      for (size_t t = 0; t < a.logprobs.size(); ++t)
        EXPECT_NEAR(a.logprobs[t], b.logprobs[t], most);
    }
  }
}

}  // namespace
}  // namespace penstock
