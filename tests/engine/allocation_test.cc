// step() allocates nothing once it has warmed up; a submit() that runs out of memory leaves the
// engine as it was.
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"
#include "engine/letter_grammar.h"
#include "support/counted_memory.h"

namespace penstock {
namespace {

class Silent : public EventSink {
 public:
  void on_tokens(RequestId, std::span<const TokenEvent> events) override {
    n_events += events.size();
  }
  size_t n_events = 0;
};

TEST(Step, AllocatesNothingAfterWarmUp) {
  FakeEngineConfig config;
  config.n_blocks = {400};
  config.max_model_len = 400;
  FakeEngine fake(config);
  const auto sink = std::make_shared<Silent>();
  for (int i = 0; i < 6; ++i) {
    Request request = request_of(prompt_of(20, i), 300, i);
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 3;
    request.sampling.top_k = i % 2 == 0 ? 10 : 0;
    request.sampling.top_p = i % 3 == 0 ? 0.9f : 1.0f;
    request.sampling.repetition_penalty = i % 2 == 0 ? 1.2f : 1.0f;
    request.sampling.dry_multiplier = i == 4 ? 0.5f : 0.0f;
    request.sampling.n = i == 5 ? 2 : 1;
    ASSERT_TRUE(fake.engine->submit(request, sink));
  }
  for (int i = 0; i < 100; ++i) fake.engine->step();
  const int64_t before = n_allocations;
  const size_t events = sink->n_events;
  for (int i = 0; i < 100; ++i) fake.engine->step();
  EXPECT_EQ(sink->n_events - events, 700u);
  EXPECT_EQ(n_allocations - before, 0);
}

int64_t allocations_of(Engine& engine, int n_steps) {
  const int64_t before = n_allocations;
  for (int i = 0; i < n_steps; ++i) engine.step();
  return n_allocations - before;
}

// A step under a grammar, with its forced text drafted and without; the masks are known after the
// warm-up. How much is drafted hangs on what steps cost, so a step may be the largest so far at any
// time: its events take memory once.
TEST(Step, AllocatesNothingAfterWarmUpUnderAGrammar) {
  for (const bool draft_forced : {false, true}) {
    FakeEngineConfig config;
    config.vocab_size = 27;
    config.n_blocks = {800};
    config.max_model_len = 800;
    config.draft_forced = draft_forced;
    FakeEngine fake(config);
    const auto sink = std::make_shared<Silent>();
    for (int i = 0; i < 6; ++i) {
      Request request = request_of(prompt_of(20, i, 27), 700, i);
      request.matcher = letter_grammar(i % 2 == 0 ? "([a-c](xyzxyz))+" : "([ab]+[cd]{2,5})+", 27);
      request.sampling.banned_token_ids = {0};
      request.sampling.ignore_eos = true;
      request.sampling.repetition_penalty = i % 3 == 0 ? 1.2f : 1.0f;
      ASSERT_TRUE(fake.engine->submit(request, sink));
    }
    for (int i = 0; i < 60; ++i) fake.engine->step();
    const size_t events = sink->n_events;
    int64_t fewest = allocations_of(*fake.engine, 20);
    for (int i = 0; i < 2; ++i) {
      const int64_t n = allocations_of(*fake.engine, 20);
      fewest = draft_forced ? std::min(fewest, n) : fewest + n;
    }
    EXPECT_GE(sink->n_events - events, 360u);
    EXPECT_EQ(fewest, 0) << draft_forced;
  }
}

TEST(Submit, WithoutMemoryThrowsAndLeavesNothingBehind) {
  FakeEngineConfig config;
  config.engine.max_queued_requests = 3;
  FakeEngine fake(config);
  Request request = request_of(prompt_of(20), 5);
  request.sampling.stop_token_ids = {49};
  request.sampling.n = 2;
  const auto sink = std::make_shared<Collector>();
  int n_failed = 0;
  allocations_to_refuse = -1;
  for (bool submitted = false; !submitted; ++n_failed) {
    Request copy = request;
    std::shared_ptr<EventSink> receiver = sink;
    allocations_left = n_failed;
    try {
      submitted = fake.engine->submit(std::move(copy), std::move(receiver)).has_value();
    } catch (const std::bad_alloc&) {
    }
    allocations_left = -1;
    ASSERT_LT(n_failed, 1000);
  }
  EXPECT_GT(n_failed, 1);  // more failures than the queue has room: they took none of it
  const auto second = fake.submit(request), third = fake.submit(request);
  fake.run();
  for (const auto& one : {sink, second, third}) {
    ASSERT_EQ(one->n_finished(), 2);
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(one->result.sequences[i].tokens, fake.expected(request, i));
  }
  EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
}

}  // namespace
}  // namespace penstock
