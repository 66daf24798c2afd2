// Places between tenants: whoever has nothing that runs gets one from a tenant that has several, and
// nobody's text changes.
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace penstock {
namespace {

constexpr int kLong = 60, kShort = 3;

class Exchange : public ::testing::Test {
 protected:
  struct Sent {
    Request request;
    std::shared_ptr<Collector> sink;
    bool ended() const { return sink->n_finished() > 0; }
    size_t n_tokens() const { return sink->result.sequences[0].tokens.size(); }
  };
  static FakeEngineConfig config(double exchange_after = 0) {
    FakeEngineConfig config;
    config.engine.max_num_seqs = 4;
    config.n_blocks = {200};
    config.exchange_after = exchange_after;
    return config;
  }
  Sent& send(FakeEngine& fake, const std::string& tenant, int n_tokens, int n_prompt = 8) {
    const int seed = static_cast<int>(all_.size()) + 1;
    Request request = request_of(prompt_of(n_prompt, seed), n_tokens, seed);
    request.sampling.ignore_eos = true;
    request.tenant = tenant;
    auto sink = fake.submit(request);
    return all_.emplace_back(std::move(request), std::move(sink));
  }
  static int steps_until_end(FakeEngine& fake, const Sent& one) {
    int n = 0;
    for (; !one.ended() && n < 10000; ++n) {
      fake.engine->step();
      fake.engine->scheduler().check_invariants();
    }
    return n;
  }
  // Everything ends, with the text that it gives alone.
  void expect_whole(FakeEngine& fake) {
    fake.run();
    for (const Sent& one : all_)
      EXPECT_EQ(one.sink->result.sequences[0].tokens, fake.expected(one.request));
  }
  static double n_preemptions(const FakeEngine& fake) {
    return fake.engine->metrics().num_preemptions.value;
  }
  std::deque<Sent> all_;
};

TEST_F(Exchange, ATenantWithoutAPlaceGetsOneOfAnother) {
  FakeEngine fake(config());
  for (int i = 0; i < 20; ++i) send(fake, "many", kLong);
  for (int i = 0; i < 5; ++i) fake.engine->step();
  EXPECT_LT(steps_until_end(fake, send(fake, "one", kShort)), kShort + 5);
  EXPECT_EQ(n_preemptions(fake), 1);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(all_[static_cast<size_t>(i)].ended()) << i;
  expect_whole(fake);
}

TEST_F(Exchange, NotBeforeItHasWaited) {
  FakeEngine fake(config(1000));
  for (int i = 0; i < 4; ++i) send(fake, "many", kLong);
  for (int i = 0; i < 5; ++i) fake.engine->step();
  EXPECT_GT(steps_until_end(fake, send(fake, "one", kShort)), kLong / 2);
  EXPECT_EQ(n_preemptions(fake), 0);
  expect_whole(fake);
}

// Of those that run the shortest is computed again soonest.
TEST_F(Exchange, TheShortestOfTheTenantWithTheMostGivesItsPlace) {
  FakeEngine fake(config());
  Sent& pair = send(fake, "pair", kLong, 4);
  send(fake, "three", kLong, 20);
  const Sent& shortest = send(fake, "three", kLong, 10);
  send(fake, "three", kLong, 20);
  for (int i = 0; i < 8; ++i) fake.engine->step();
  steps_until_end(fake, send(fake, "none", kShort));
  EXPECT_EQ(n_preemptions(fake), 1);
  expect_whole(fake);
  EXPECT_EQ(shortest.sink->result.sequences[0].stats.preemptions, 1);
  EXPECT_EQ(pair.sink->result.sequences[0].stats.preemptions, 0);
}

TEST_F(Exchange, WhoHasOnePlaceKeepsIt) {
  FakeEngine fake(config());
  for (int i = 0; i < 6; ++i) send(fake, std::string(1, static_cast<char>('a' + i)), kLong);
  for (int i = 0; i < 6; ++i) send(fake, "a", kLong);
  expect_whole(fake);
  EXPECT_EQ(n_preemptions(fake), 0);
}

TEST_F(Exchange, RequestsOfOneTenantOrNobodyWait) {
  for (const char* tenant : {"", "one"}) {
    FakeEngine fake(config());
    for (int i = 0; i < 12; ++i) send(fake, tenant, kLong);
    expect_whole(fake);
    EXPECT_EQ(n_preemptions(fake), 0);
    all_.clear();
  }
}

// Where blocks are missing and not places: two of "many" have what they need until they end, 40
// blocks of 4 tokens, and "one" finds no room beside them.
TEST_F(Exchange, MemoryIsExchangedToo) {
  for (const double exchange_after : {0.0, 1000.0}) {
    FakeEngineConfig small = config(exchange_after);
    small.n_blocks = {40};
    FakeEngine fake(small);
    for (int i = 0; i < 2; ++i) send(fake, "many", 40, 40);
    for (int i = 0; i < 5; ++i) fake.engine->step();
    const int n_steps = steps_until_end(fake, send(fake, "one", kShort, 80));
    if (exchange_after == 0) {
      EXPECT_LT(n_steps, kShort + 12);  // by the clock, how many of them it waits
    } else
      EXPECT_GT(n_steps, 30);
    EXPECT_EQ(n_preemptions(fake), exchange_after == 0 ? 1 : 0);
    expect_whole(fake);
    all_.clear();
  }
}

// Where decoding sequences use up every step, and not places.
TEST_F(Exchange, TokensOfAStepAreExchangedToo) {
  FakeEngineConfig small = config();
  small.engine.max_num_batched_tokens = 4;
  FakeEngine fake(small);
  for (int i = 0; i < 20; ++i) send(fake, "many", kLong);
  for (int i = 0; i < 20; ++i) fake.engine->step();
  EXPECT_LT(steps_until_end(fake, send(fake, "one", kShort)), 8 + kShort + 5);
  EXPECT_EQ(n_preemptions(fake), 1);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(all_[static_cast<size_t>(i)].ended()) << i;
  expect_whole(fake);
}

// Where they leave one token, which a long prompt has for as many steps as it has tokens.
TEST_F(Exchange, TheLastTokensOfAStepAreExchangedToo) {
  FakeEngineConfig small = config();
  small.engine.max_num_batched_tokens = 4;
  FakeEngine fake(small);
  for (int i = 0; i < 20; ++i) send(fake, "many", kLong);
  for (int i = 0; i < 20; ++i) fake.engine->step();
  send(fake, "long", kShort, 40);
  for (int i = 0; i < 5; ++i) fake.engine->step();
  EXPECT_LT(steps_until_end(fake, send(fake, "one", kShort)), 30);
  EXPECT_EQ(n_preemptions(fake), 2);
  expect_whole(fake);
}

TEST_F(Exchange, AHigherPriorityTakesTokensOfAStepToo) {
  FakeEngineConfig by_priority = config(1000);
  by_priority.engine.policy = "priority";
  by_priority.engine.max_num_batched_tokens = 4;
  FakeEngine fake(by_priority);
  for (int i = 0; i < 8; ++i) send(fake, "many", kLong);
  for (int i = 0; i < 20; ++i) fake.engine->step();
  Request request = request_of(prompt_of(8, 50), kShort, 50);
  request.sampling.ignore_eos = true;
  request.priority = Priority::kHigh;
  auto sink = fake.submit(request);
  EXPECT_LT(steps_until_end(fake, all_.emplace_back(std::move(request), std::move(sink))),
            8 + kShort + 5);
  EXPECT_EQ(n_preemptions(fake), 1);
  expect_whole(fake);
}

TEST_F(Exchange, TakesNoPlaceOfAHigherPriority) {
  FakeEngineConfig by_priority = config();
  by_priority.engine.policy = "priority";
  FakeEngine fake(by_priority);
  for (int i = 0; i < 4; ++i) {
    Request request = request_of(prompt_of(8, i + 1), kLong, i + 1);
    request.sampling.ignore_eos = true;
    request.tenant = "many";
    request.priority = Priority::kHigh;
    auto sink = fake.submit(request);
    all_.emplace_back(std::move(request), std::move(sink));
  }
  for (int i = 0; i < 5; ++i) fake.engine->step();
  steps_until_end(fake, send(fake, "one", kShort));
  EXPECT_EQ(n_preemptions(fake), 0);
  expect_whole(fake);
}

}  // namespace
}  // namespace penstock
