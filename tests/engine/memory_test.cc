// Memory that runs out in the middle of step(), at every single allocation: the requests that it
// was for end with an error, all others with their text, and no block is lost.
#include <gtest/gtest.h>

#include <spdlog/spdlog.h>

#include <tuple>
#include <utility>

#include "base/log.h"
#include "engine/engine_fixture.h"
#include "support/counted_memory.h"

namespace penstock {
namespace {

// Keeps what comes. It runs out of memory like the engine.
class PlainSink : public EventSink {
 public:
  void on_tokens(RequestId, std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      Part& part = parts.at(event.index);
      if (event.token != kNoToken) part.tokens.push_back(event.token);
      if (event.finish == FinishReason::kNone) continue;
      ++part.n_ends;
      part.finish = event.finish;
      if (event.error != nullptr) part.code = event.error->code;
    }
  }
  struct Part {
    std::vector<TokenId> tokens;
    int n_ends = 0;
    FinishReason finish = FinishReason::kNone;
    ErrorCode code = ErrorCode::kInternal;
  };
  std::vector<Part> parts = std::vector<Part>(4);
};

FakeEngineConfig tight_config(std::tuple<bool, bool> store_and_device) {
  const auto [store, device] = store_and_device;
  FakeEngineConfig config;
  config.device = device;
  config.n_blocks = {24, 24};
  config.windows = {0, 9};
  config.max_model_len = 60;
  config.engine.max_num_batched_tokens = 24;
  if (store) config.store.memory_bytes = 1 << 20;
  return config;
}

// Requests that share prefixes, fork, search with beams and are preempted.
std::vector<Request> workload() {
  std::vector<Request> requests;
  for (int i = 0; i < 7; ++i) {
    Request request = request_of(prompt_of(9 + 3 * i, i / 2), 12 + i, i);
    request.sampling.ignore_eos = true;
    request.sampling.temperature = i % 2 == 0 ? 1.0f : 0.0f;
    if (i == 2) request.sampling.n = 3;
    if (i == 4) {
      request.sampling.use_beam_search = true;
      request.sampling.beam_width = request.sampling.n = 2;
      request.sampling.temperature = 0;
    }
    if (i == 5) request.sampling.logprobs = 2;
    if (i == 6) request.sampling.prompt_logprobs = 1;
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Outcome {
  int n_failed = 0;
  bool hit = false;  // an allocation failed
};

// Runs the workload; from the given step on, after `allowed` further allocations inside step(),
// `n_fail` fail.
Outcome run(const FakeEngineConfig& config, int allowed, int n_fail) {
  FakeEngine fake(config);
  const std::vector<Request> requests = workload();
  std::vector<std::shared_ptr<PlainSink>> sinks;
  for (const Request& request : requests) {
    sinks.push_back(std::make_shared<PlainSink>());
    EXPECT_TRUE(fake.engine->submit(request, sinks.back()));
  }
  allocations_to_refuse = n_fail;
  allocations_left = allowed;
  bool more = true;
  for (int i = 0; more && i < 3000; ++i) {
    more = fake.engine->step();
    const int64_t left = std::exchange(allocations_left, -1);
    fake.engine->scheduler().check_invariants();
    allocations_left = left;
  }
  Outcome outcome;
  outcome.hit = std::exchange(allocations_left, -1) < 0;
  EXPECT_FALSE(more);
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int k = 0; k < requests[i].sampling.n; ++k) {
      const PlainSink::Part& part = sinks[i]->parts[k];
      EXPECT_GE(part.n_ends, 1) << i << " " << k;
      if (part.finish == FinishReason::kError) {
        EXPECT_EQ(part.code, ErrorCode::kResourceExhausted);
        ++outcome.n_failed;
      } else if (!requests[i].sampling.use_beam_search) {
        EXPECT_EQ(part.tokens, fake.expected(requests[i], k)) << i << " " << k;
      }
    }
  }
  EXPECT_EQ(fake.engine->metrics().out_of_memory.value > 0, outcome.n_failed > 0);
  EXPECT_EQ(fake.engine->scheduler().n_running() + fake.engine->scheduler().n_waiting(), 0);
  // It goes on as if nothing had been.
  const auto after = fake.submit(requests[0]);
  fake.run();
  EXPECT_EQ(after->result.sequences[0].tokens, fake.expected(requests[0]));
  for (int g = 0; g < 2; ++g) EXPECT_EQ(fake.engine->scheduler().allocator(g).n_referenced(), 0);
  return outcome;
}

class OutOfMemory : public ::testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  void SetUp() override { log().set_level(spdlog::level::off); }  // each failure would be told
  void TearDown() override { log().set_level(level_); }

 private:
  const spdlog::level::level_enum level_ = log().level();
};

TEST_P(OutOfMemory, AtAnyAllocationEndsOnlyTheRequestsItWasFor) {
  const FakeEngineConfig config = tight_config(GetParam());
  int allowed = 0, n_with_survivors = 0, n_with_failures = 0;
  for (Outcome outcome{0, true}; outcome.hit && !HasFailure(); ++allowed) {
    outcome = run(config, allowed, 1);
    n_with_failures += outcome.n_failed > 0;
    n_with_survivors += outcome.n_failed > 0 && outcome.n_failed < 10;
  }
  EXPECT_GT(allowed, 100);
  EXPECT_GT(n_with_failures, 50);
  EXPECT_GT(n_with_survivors, n_with_failures / 2);
}

// Several in a row: the way out itself gets no memory either.
TEST_P(OutOfMemory, ForAWhile) {
  const FakeEngineConfig config = tight_config(GetParam());
  for (const int n_fail : {2, 5, 20, 100}) {
    for (int allowed = n_fail % 7; allowed < 700 && !HasFailure(); allowed += 13)
      run(config, allowed, n_fail);
  }
}

INSTANTIATE_TEST_SUITE_P(StoreOnDevice, OutOfMemory,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()));

}  // namespace
}  // namespace penstock
