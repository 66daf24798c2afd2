// A device that is lost at any moment ends every request with that error, and the engine takes no
// more; memory that it refuses ends those that run, and the engine goes on. Nothing hangs, what is
// opened on it gives an error, and all memory is given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "emulation/cuda/trouble.h"
#include "engine/collector.h"
#include "kernels/philox.h"
#include "ops/ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using cuda::EmulatedCalls;

struct FailureCase {
  const char* name;
  const char* model;
  const char* spec = "off";
  int n_cpu_moe = 0;  // layers whose experts are the CPU's
  int64_t copies = -1;
  bool exact = true;
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
    config.n_cpu_moe = GetParam().n_cpu_moe > 0 ? GetParam().n_cpu_moe : -1;
    config.spec = GetParam().spec;
    config.spec_length = config.spec == "off" ? "auto" : "3";
    if (config.spec == "draft") config.draft_model = config.model;
    config.expert_cache_memory = GetParam().copies;
    config.batch_invariant = GetParam().exact;  // what drafts change
    config.kv_store = "memory:8M";
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
  // How many calls of this kind a run makes, of an engine that is open.
  static int64_t calls_of_run(EmulatedCalls kind) {
    const auto engine = open().value();
    cuda::fail_emulated_call(0, kind);
    const auto sinks = submit_all(*engine);
    EXPECT_LT(run(*engine), 1000);
    for (const auto& sink : sinks)
      EXPECT_EQ(sink->result.sequences.at(0).finish, FinishReason::kLength);
    return cuda::fail_emulated_call(0);
  }
  // Returns how many of the five sequences have failed; all have ended.
  static int n_failed(const std::vector<std::shared_ptr<Collector>>& sinks, ErrorCode code) {
    int n_sequences = 0, n_failed = 0;
    for (const auto& sink : sinks) {
      for (const auto& [index, sequence] : sink->result.sequences) {
        ++n_sequences;
        EXPECT_EQ(sequence.n_ends, 1);
        if (sequence.finish != FinishReason::kError) continue;
        ++n_failed;
        EXPECT_TRUE(sequence.error);
        if (!sequence.error) continue;
        EXPECT_EQ(sequence.error->code, code);
        EXPECT_THAT(sequence.error->message, testing::HasSubstr("emulated device"));
      }
    }
    EXPECT_EQ(n_sequences, 5);
    return n_failed;
  }
};

TEST_P(CudaFailures, ADeviceThatIsLostEndsEveryRequest) {
  const int64_t in_use = cuda::emulated_bytes_in_use();
  for (const EmulatedCalls kind : {EmulatedCalls::kOthers, EmulatedCalls::kLaunches}) {
    const int64_t n_calls = calls_of_run(kind);
    ASSERT_GT(n_calls, 50);
    int n_ended = 0;
    for (uint64_t i = 0; i < 6; ++i) {
      const auto engine = open().value();
      const auto at = static_cast<int64_t>(1 + mix_seed(3, i) % static_cast<uint64_t>(n_calls));
      SCOPED_TRACE("call " + std::to_string(at) + " of kind " +
                   std::to_string(static_cast<int>(kind)));
      cuda::fail_emulated_call(at, kind);
      const auto sinks = submit_all(*engine);
      EXPECT_LT(run(*engine), 1000);
      const bool failed = n_failed(sinks, ErrorCode::kInternal) > 0;
      n_ended += failed ? 1 : 0;
      EXPECT_NE(engine->status().has_value(), failed);
      if (failed) {
        const auto refused =
            engine->submit(request_of(prompt_of(5), 3), std::make_shared<Collector>());
        ASSERT_FALSE(refused);
        EXPECT_THAT(refused.error().message, testing::HasSubstr("emulated device"));
      }
      cuda::fail_emulated_call(0);
    }
    EXPECT_GT(n_ended, 3);
  }
  EXPECT_EQ(cuda::emulated_bytes_in_use(), in_use);
}

// What ran ends with what the device says; what comes after it gets the bits of an engine that
// lacked nothing.
TEST_P(CudaFailures, MemoryThatAStepIsRefusedEndsWhatRunsOnly) {
  if (!GetParam().exact) GTEST_SKIP() << "bits depend on what has a copy";
  const int64_t in_use = cuda::emulated_bytes_in_use();
  const int64_t n_calls = calls_of_run(EmulatedCalls::kMemory);
  ASSERT_GT(n_calls, 2);
  const auto untroubled = open().value();
  const auto want = submit_all(*untroubled);
  run(*untroubled);
  int n_ended = 0;
  for (int64_t at = 1; at <= std::min<int64_t>(n_calls, 10); ++at) {
    SCOPED_TRACE("call " + std::to_string(at));
    const auto engine = open().value();
    cuda::fail_emulated_call(at, EmulatedCalls::kMemory);
    const auto sinks = submit_all(*engine);
    EXPECT_LT(run(*engine), 1000);
    n_ended += n_failed(sinks, ErrorCode::kResourceExhausted) > 0 ? 1 : 0;
    cuda::fail_emulated_call(0);
    ASSERT_TRUE(engine->status());
    const auto again = submit_all(*engine);
    EXPECT_LT(run(*engine), 1000);
    for (size_t i = 0; i < again.size(); ++i) {
      for (const auto& [index, sequence] : want[i]->result.sequences) {
        const Collected::Sequence& got = again[i]->result.sequences.at(index);
        EXPECT_EQ(got.tokens, sequence.tokens) << i;
        EXPECT_EQ(got.logprobs, sequence.logprobs) << i;
        EXPECT_EQ(got.finish, FinishReason::kLength) << i;
      }
    }
  }
  EXPECT_GT(n_ended, 2);
  EXPECT_GT(cuda::emulated_bytes_in_use(), in_use);  // of the one that is still open
}

TEST_P(CudaFailures, WhileItOpens) {
  const int64_t in_use = cuda::emulated_bytes_in_use();
  for (const EmulatedCalls kind :
       {EmulatedCalls::kMemory, EmulatedCalls::kLaunches, EmulatedCalls::kOthers}) {
    cuda::fail_emulated_call(0, kind);
    ASSERT_TRUE(open());
    const int64_t n_calls = cuda::fail_emulated_call(0);
    int n_refused = 0;
    for (uint64_t i = 0; i < 6; ++i) {
      const auto at = static_cast<int64_t>(1 + mix_seed(4, i) % static_cast<uint64_t>(n_calls));
      SCOPED_TRACE("call " + std::to_string(at) + " of kind " +
                   std::to_string(static_cast<int>(kind)));
      cuda::fail_emulated_call(at, kind);
      const auto engine = open();
      cuda::fail_emulated_call(0);
      if (engine) {
        EXPECT_TRUE((*engine)->status());
        continue;
      }
      ++n_refused;
      EXPECT_THAT(engine.error().message, testing::HasSubstr("emulated device"));
    }
    // A mixture that is refused memory puts experts on the host and opens.
    if (kind != EmulatedCalls::kMemory || std::string_view(GetParam().name) != "experts") {
      EXPECT_GT(n_refused, 2);
    }
  }
  EXPECT_EQ(cuda::emulated_bytes_in_use(), in_use);
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, CudaFailures,
    testing::Values(FailureCase{"plain", "llama2"}, FailureCase{"drafts", "llama2", "draft"},
                    FailureCase{"experts", "mixtral"},
                    FailureCase{"experts_on_cpu", "qwen2_moe", "off", 2},
                    FailureCase{"experts_by_the_cpu", "qwen2_moe", "off", 2, 0},
                    FailureCase{"copies", "qwen2_moe", "off", 2, -1, false}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
