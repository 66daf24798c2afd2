// Steps that are planned while another one runs, on a device that draws: the same text, whoever
// ends, waits or leaves meanwhile.
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace penstock {
namespace {

FakeEngineConfig on_device() {
  FakeEngineConfig config;
  config.device = true;
  return config;
}

void expect_text(FakeEngine& fake, const Request& request, Collector& sink) {
  for (int i = 0; i < request.sampling.n; ++i) {
    EXPECT_EQ(sink.result.sequences[i].tokens, fake.expected(request, i)) << i;
    EXPECT_EQ(sink.result.sequences[i].n_ends, 1);
    EXPECT_EQ(sink.result.sequences[i].stats.completion_tokens,
              static_cast<int>(sink.result.sequences[i].tokens.size()));
  }
}

// Runs the requests together; returns how many steps were submitted while another one was under
// way.
int run(FakeEngine& fake, const std::vector<Request>& requests) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const Request& request : requests) sinks.push_back(fake.submit(request));
  fake.run();
  for (size_t i = 0; i < requests.size(); ++i) expect_text(fake, requests[i], *sinks[i]);
  EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
  return fake.model->n_ahead();
}

Request long_request(int seed) {
  Request request = request_of(prompt_of(5 + seed, seed), 40, seed);
  request.sampling.ignore_eos = true;
  return request;
}

TEST(RunAhead, MostStepsBeginBeforeTheOneBeforeIsDone) {
  FakeEngine fake(on_device());
  EXPECT_GT(run(fake, {long_request(1), long_request(2), long_request(3)}), 20);
  EXPECT_GT(fake.model->n_drawn(), 100);
}

TEST(RunAhead, NotWhereTheHostDraws) {
  FakeEngine fake;
  EXPECT_EQ(run(fake, {long_request(1), long_request(2)}), 0);
}

TEST(RunAhead, ASequenceThatEndsHasComputedATokenTooMuchThatNobodySees) {
  FakeEngine fake(on_device());
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {  // they end by a token of the model, at different times
    requests.push_back(request_of(prompt_of(6, i), 100, i));
    requests.back().eos_token_ids = {0};
    requests.back().sampling.stop_token_ids = {3 + i, 20};
  }
  EXPECT_GT(run(fake, requests), 0);
}

TEST(RunAhead, WaitsForWhatThePastDecides) {
  FakeEngine fake(on_device());
  Request penalized = long_request(1);
  penalized.sampling.repetition_penalty = 1.5f;
  EXPECT_EQ(run(fake, {penalized}), 0);
  Request dry = long_request(2);
  dry.sampling.dry_multiplier = 0.8f;
  EXPECT_EQ(run(fake, {dry}), 0);
  Request typical = long_request(3);
  typical.sampling.typical_p = 0.5f;  // the host's
  EXPECT_EQ(run(fake, {typical}), 0);
}

TEST(RunAhead, SeveralSequencesOfARequest) {
  FakeEngine fake(on_device());
  Request request = long_request(1);
  request.sampling.n = 3;
  EXPECT_GT(run(fake, {request, long_request(2)}), 0);
}

TEST(RunAhead, WhatTheDeviceLeavesIsComputedAgainBesideAWindow) {
  FakeEngineConfig config = on_device();
  config.n_blocks = {64, 64};
  config.windows = {0, 6};
  FakeEngine fake(config);
  EXPECT_GT(run(fake, {long_request(1), long_request(2)}), 0);
}

// The token that the device has left was the next of a sequence that had to begin anew meanwhile.
TEST(RunAhead, WhatTheDeviceLeavesOfASequenceThatBeganAnew) {
  FakeEngineConfig config = on_device();
  config.engine.policy = "priority";
  config.engine.max_num_seqs = 1;
  config.engine.enable_prefix_caching = false;
  FakeEngine fake(config);
  Scheduler& scheduler = fake.engine->scheduler();
  Sequence low, high;
  for (Sequence* one : {&low, &high}) {
    one->id = SeqId{one == &low ? 1u : 2u};
    one->tokens = prompt_of(6);
    one->n_prompt = 6;
    one->max_len = 20;
    one->arrival_order = one == &low ? 1 : 2;
    one->priority = one == &low ? Priority::kLow : Priority::kHigh;
  }
  Plan plan;
  scheduler.add(low);
  scheduler.next(0, 100, plan);
  scheduler.commit(plan);
  scheduler.append_ahead(low, -1);
  scheduler.add(high);
  scheduler.next(0, 100, plan);
  ASSERT_EQ(low.state, SeqState::kWaiting);
  scheduler.finish(high);
  scheduler.next(0, 100, plan);
  ASSERT_EQ(low.state, SeqState::kRunning);
  scheduler.drop_ahead(low, true);
  EXPECT_EQ(low.n_tokens(), 6);
  EXPECT_EQ(low.n_computed, 0) << "none of its tokens";
  scheduler.finish(low);
}

TEST(RunAhead, SequencesLoseTheirBlocksMeanwhile) {
  for (const int64_t memory_bytes : {0, 1 << 20}) {
    FakeEngineConfig config = on_device();
    config.n_blocks = {20};
    config.max_model_len = 80;
    config.store.memory_bytes = memory_bytes;
    FakeEngine fake(config);
    std::vector<Request> requests;
    for (int i = 0; i < 6; ++i) requests.push_back(long_request(i));
    EXPECT_GT(run(fake, requests), 0);
    EXPECT_GT(fake.engine->metrics().num_preemptions.value, 0);
  }
}

TEST(RunAhead, RequestsAreCancelledMeanwhile) {
  FakeEngine fake(on_device());
  for (int after = 2; after < 8; ++after) {
    RequestId id{};
    const auto cancelled = fake.submit(long_request(after), &id);
    const Request other = long_request(20);
    const auto kept = fake.submit(other);
    for (int i = 0; i < after; ++i) fake.engine->step();
    fake.engine->cancel(id, FinishReason::kAbort);
    fake.run();
    expect_text(fake, other, *kept);
    EXPECT_EQ(cancelled->result.sequences[0].finish, FinishReason::kAbort);
    EXPECT_EQ(cancelled->n_finished(), 1);
  }
  EXPECT_GT(fake.model->n_ahead(), 0);
}

TEST(RunAhead, AllAreCancelledMeanwhile) {
  FakeEngine fake(on_device());
  RequestId id{};
  const auto sink = fake.submit(long_request(1), &id);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(fake.engine->step());
  fake.engine->cancel(id, FinishReason::kAbort);
  fake.run();
  EXPECT_EQ(sink->n_finished(), 1);
  EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
}

TEST(RunAhead, TheEngineIsStoppedMeanwhile) {
  for (int after = 1; after < 5; ++after) {
    FakeEngine fake(on_device());
    const auto sink = fake.submit(long_request(1));
    for (int i = 0; i < after; ++i) fake.engine->step();
    fake.engine->stop();
    EXPECT_EQ(sink->result.sequences[0].finish, FinishReason::kAbort);
    fake.engine->scheduler().check_invariants();
    EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
  }
}

TEST(RunAhead, WithAThread) {
  FakeEngine fake(on_device());
  fake.engine->start();
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(long_request(i));
    sinks.push_back(fake.submit(requests.back()));
  }
  for (const auto& sink : sinks)
    while (sink->n_finished() < 1) std::this_thread::yield();
  fake.engine->stop();
  for (size_t i = 0; i < requests.size(); ++i) expect_text(fake, requests[i], *sinks[i]);
}

}  // namespace
}  // namespace penstock
