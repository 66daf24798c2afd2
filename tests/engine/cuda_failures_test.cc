// A device that is lost at any moment, or memory that it refuses, ends every request with that error, and the engine takes no
// more; nothing hangs, and what is opened on it gives an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/collector.h"
#include "kernels/philox.h"
#include "ops/cuda/device.h"
#include "ops/ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

struct FailureCase {
  const char* name;
  const char* model;
  const char* spec = "off";
};
void PrintTo(const FailureCase& of, std::ostream* out) { *out << of.name; }

class CudaFailures : public testing::TestWithParam<FailureCase> {
 protected:
  void SetUp() override {
    if (const auto made = make_ops("cuda_emulated", {.n_threads = 1}); !made)
      GTEST_SKIP() << made.error().message;
  }
  void TearDown() override { cuda::fail_emulated_call(0); }

  static Result<std::unique_ptr<Engine>> open() {
    EngineConfig config;
    config.backend = "cuda_emulated";
    config.model = (tests_dir() / "golden" / "models" / GetParam().model).string();
    config.threads = 1;
    config.max_num_seqs = 4;
    config.max_model_len = 48;
    config.spec = GetParam().spec;
    config.spec_length = config.spec == "off" ? "auto" : "3";
    if (config.spec == "draft") config.draft_model = config.model;
    config.preemption = "swap";
    config.kv_cache_memory = int64_t{1} << 20;
    return Engine::open(config);
  }
  static std::vector<std::shared_ptr<Collector>> submit_all(Engine& engine) {
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 4; ++i) {
      Request request = request_of(prompt_of(5 + 6 * i, i), 5 + i, static_cast<uint64_t>(i));
      request.sampling.ignore_eos = true;
      if (i == 0) request.sampling.n = 2;
      if (i == 1) request.sampling.logprobs = 2;
      if (i == 2) request.sampling.top_p = 0.5f;
      if (i == 3) request.sampling.typical_p = 0.5f;  // drawn on the host
      sinks.push_back(std::make_shared<Collector>());
      EXPECT_TRUE(engine.submit(std::move(request), sinks.back()));
    }
    return sinks;
  }
  // Returns how many steps were taken.
  static int run(Engine& engine) {
    int n = 0;
    while (engine.step() && n < 1000) ++n;
    return n;
  }
};

TEST_P(CudaFailures, ADeviceThatIsLostEndsEveryRequest) {
  cuda::fail_emulated_call(0);
  {
    const auto engine = open().value();
    cuda::fail_emulated_call(0);
    const auto sinks = submit_all(*engine);
    EXPECT_LT(run(*engine), 1000);
    for (const auto& sink : sinks) EXPECT_EQ(sink->result.sequences.at(0).finish, FinishReason::kLength);
  }
  const int64_t n_calls = cuda::fail_emulated_call(0);
  ASSERT_GT(n_calls, 50);
  int n_ended = 0;
  for (uint64_t i = 0; i < 12; ++i) {
    const auto engine = open().value();
    const auto at = static_cast<int64_t>(1 + mix_seed(3, i) % static_cast<uint64_t>(n_calls));
    cuda::fail_emulated_call(at);
    const auto sinks = submit_all(*engine);
    EXPECT_LT(run(*engine), 1000);
    int n_sequences = 0, n_failed = 0;
    for (const auto& sink : sinks) {
      for (const auto& [index, sequence] : sink->result.sequences) {
        ++n_sequences;
        ASSERT_EQ(sequence.n_ends, 1) << "call " << at;
        if (sequence.finish != FinishReason::kError) continue;
        ++n_failed;
        ASSERT_TRUE(sequence.error) << "call " << at;
        EXPECT_THAT(sequence.error->message, testing::HasSubstr("emulated device")) << "call " << at;
      }
    }
    EXPECT_EQ(n_sequences, 5) << "call " << at;
    n_ended += n_failed > 0 ? 1 : 0;
    EXPECT_EQ(engine->status().has_value(), n_failed == 0) << "call " << at;
    if (n_failed > 0) {
      const auto refused = engine->submit(request_of(prompt_of(5), 3), std::make_shared<Collector>());
      ASSERT_FALSE(refused) << "call " << at;
      EXPECT_THAT(refused.error().message, testing::HasSubstr("emulated device"));
    }
    cuda::fail_emulated_call(0);
  }
  EXPECT_GT(n_ended, 5);
}

TEST_P(CudaFailures, WhileItOpens) {
  cuda::fail_emulated_call(0);
  ASSERT_TRUE(open());
  const int64_t n_calls = cuda::fail_emulated_call(0);
  int n_refused = 0;
  for (uint64_t i = 0; i < 12; ++i) {
    const auto at = static_cast<int64_t>(1 + mix_seed(4, i) % static_cast<uint64_t>(n_calls));
    cuda::fail_emulated_call(at);
    const auto engine = open();
    cuda::fail_emulated_call(0);
    if (engine) {
      EXPECT_TRUE((*engine)->status()) << "call " << at;
      continue;
    }
    ++n_refused;
    EXPECT_THAT(engine.error().message, testing::HasSubstr("emulated device")) << "call " << at;
  }
  EXPECT_GT(n_refused, 5);
}

INSTANTIATE_TEST_SUITE_P(Tiny, CudaFailures,
                         testing::Values(FailureCase{"plain", "llama2"},
                                         FailureCase{"drafts", "llama2", "draft"},
                                         FailureCase{"experts", "mixtral"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
