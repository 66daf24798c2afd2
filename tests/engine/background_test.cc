// What runs in the gaps: it gives way to others, gets all there is without them, and loses nothing.
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace penstock {
namespace {

Request background_request(int n_tokens, int seed, Priority priority = Priority::kBackground) {
  Request request = request_of(prompt_of(8, seed), n_tokens, seed);
  request.sampling.ignore_eos = true;
  request.priority = priority;
  return request;
}

struct Sent {
  Request request;
  std::shared_ptr<Collector> sink;
};

Sent send(FakeEngine& fake, const Request& request) { return {request, fake.submit(request)}; }

size_t n_tokens(const Sent& sent) { return sent.sink->result.sequences[0].tokens.size(); }
bool has_ended(const Sent& sent) { return sent.sink->result.sequences[0].n_ends > 0; }

// Tokens that all of them got together in one step.
size_t step(FakeEngine& fake, const std::vector<Sent>& all) {
  const auto sum = [&] {
    size_t sum = 0;
    for (const Sent& one : all) sum += n_tokens(one);
    return sum;
  };
  const size_t before = sum();
  fake.engine->step();
  fake.engine->scheduler().check_invariants();
  return sum() - before;
}

void expect_whole(const FakeEngine& fake, const std::vector<Sent>& all) {
  for (const Sent& one : all)
    EXPECT_EQ(one.sink->result.sequences[0].tokens, fake.expected(one.request));
}

TEST(Background, OneGoesOnBesideOthersAndAllOfThemAlone) {
  FakeEngine fake;
  std::vector<Sent> behind;
  for (int i = 0; i < 4; ++i) behind.push_back(send(fake, background_request(40, i)));
  while (n_tokens(behind[3]) == 0) fake.engine->step();
  EXPECT_EQ(step(fake, behind), 4u);
  const Sent other = send(fake, background_request(10, 9, Priority::kNormal));
  while (n_tokens(other) == 0) fake.engine->step();
  while (n_tokens(other) < 10) EXPECT_EQ(step(fake, behind), 1u);
  EXPECT_EQ(step(fake, behind), 4u);
  EXPECT_EQ(fake.engine->metrics().num_preemptions.value, 0);  // they kept what they had
  fake.run();
  expect_whole(fake, behind);
  expect_whole(fake, {other});
}

TEST(Background, GivesItsPlaceAtOnce) {
  for (const char* const policy : {"continuous", "priority", "static", "dynamic"}) {
    FakeEngineConfig config;
    config.engine.max_num_seqs = 2;
    config.engine.max_wait_ms = 0;
    config.engine.policy = policy;
    FakeEngine fake(config);
    std::vector<Sent> all = {send(fake, background_request(100, 1)),
                             send(fake, background_request(100, 2))};
    for (int i = 0; i < 5; ++i) fake.engine->step();
    all.push_back(send(fake, background_request(5, 3, Priority::kNormal)));
    fake.engine->step();
    EXPECT_EQ(n_tokens(all[2]), 1u) << policy;
    EXPECT_EQ(fake.engine->metrics().num_preemptions.value, 1) << policy;
    fake.run();
    expect_whole(fake, all);
  }
}

TEST(Background, GivesItsBlocks) {
  FakeEngineConfig config;
  config.n_blocks = {30};  // 120 tokens
  FakeEngine fake(config);
  std::vector<Sent> all = {send(fake, background_request(50, 1)),
                           send(fake, background_request(50, 2))};
  while (n_tokens(all[1]) < 40) fake.engine->step();
  Request large = request_of(prompt_of(80, 3), 5, 3);
  large.sampling.ignore_eos = true;
  all.push_back(send(fake, large));
  for (int i = 0; i < 4; ++i) fake.engine->step();  // 32 tokens in a step
  EXPECT_GE(n_tokens(all[2]), 1u);
  EXPECT_FALSE(has_ended(all[1]));
  fake.run();
  expect_whole(fake, all);
}

TEST(Background, IsStartedBehindWhoCameLater) {
  FakeEngineConfig config;
  config.engine.max_num_seqs = 1;
  FakeEngine fake(config);
  std::vector<Sent> all = {send(fake, background_request(5, 1)),
                           send(fake, background_request(5, 2, Priority::kLow))};
  fake.engine->step();
  EXPECT_EQ(n_tokens(all[0]), 0u);
  EXPECT_EQ(n_tokens(all[1]), 1u);
  fake.run();
  expect_whole(fake, all);
}

// There is always another one, and a place: each of those behind gets its turn all the same, those
// of a beam too.
TEST(Background, GoesOnBesideOthersWithoutEnd) {
  FakeEngine fake;
  std::vector<Sent> behind;
  for (int i = 0; i < 3; ++i) behind.push_back(send(fake, background_request(20, i)));
  Request beams = background_request(6, 3);
  beams.sampling.use_beam_search = true;
  beams.sampling.beam_width = beams.sampling.n = 2;
  beams.sampling.seed.reset();
  behind.push_back(send(fake, beams));
  std::vector<Sent> others;
  int steps = 0;
  const auto open = [](const Sent& one) { return !has_ended(one); };
  for (; std::ranges::any_of(behind, open) && steps < 500; ++steps) {
    if (others.empty() || n_tokens(others.back()) >= 10)
      others.push_back(send(fake, background_request(20, 100 + steps, Priority::kNormal)));
    fake.engine->step();
    fake.engine->scheduler().check_invariants();
  }
  EXPECT_LT(steps, 500);
  fake.run();
  behind.pop_back();
  expect_whole(fake, behind);
  expect_whole(fake, others);
}

TEST(Background, PromptsAreTakenInByShortPartsBesideOthers) {
  FakeEngineConfig config;
  config.engine.max_num_batched_tokens = 128;
  config.engine.prefill_chunk = 128;
  FakeEngine fake(config);
  const Sent other = send(fake, background_request(50, 1, Priority::kNormal));
  while (n_tokens(other) < 2) fake.engine->step();
  Request prompt = request_of(prompt_of(120, 2), 2, 2);
  prompt.priority = Priority::kBackground;
  const Sent behind = send(fake, prompt);
  while (n_tokens(behind) == 0) {
    const int64_t before = fake.model->n_tokens();
    fake.engine->step();
    EXPECT_LE(fake.model->n_tokens() - before, 1 + 32);
  }
  EXPECT_FALSE(has_ended(other));
  fake.run();
  expect_whole(fake, {other, behind});
}

// Whoever comes waits for the end of a step, so that none is long; but a step for others is as long
// as ever.
TEST(Background, PromptsAreTakenInByPartsAmongThemselves) {
  FakeEngineConfig config;
  config.engine.max_num_batched_tokens = 512;
  config.engine.prefill_chunk = 512;
  config.n_blocks = {400};
  config.max_model_len = 400;
  FakeEngine fake(config);
  std::vector<Sent> all;
  for (int i = 0; i < 4; ++i) {
    Request request = request_of(prompt_of(100, i), 3, i);
    request.priority = Priority::kBackground;
    all.push_back(send(fake, request));
  }
  const auto tokens_of_step = [&] {
    const int64_t before = fake.model->n_tokens();
    fake.engine->step();
    return fake.model->n_tokens() - before;
  };
  EXPECT_EQ(tokens_of_step(), 128);
  for (int i = 0; i < 3; ++i) EXPECT_LE(tokens_of_step(), 128 + 4);
  Request other = request_of(prompt_of(300, 9), 3, 9);
  all.push_back(send(fake, other));
  EXPECT_GT(tokens_of_step(), 128 + 4);
  fake.run();
  expect_whole(fake, all);
}

FakeEngineConfig config_of_long_prompts() {
  FakeEngineConfig config;
  config.engine.max_num_batched_tokens = 512;
  config.engine.enable_prefix_caching = false;
  config.n_blocks = {400};
  config.max_model_len = 400;
  return config;
}

Request long_prompt(int n_prompt, int seed, Priority priority) {
  Request request = request_of(prompt_of(n_prompt, seed), 3, seed);
  request.sampling.ignore_eos = true;
  request.priority = priority;
  return request;
}

int64_t tokens_of_step(FakeEngine& fake) {
  const int64_t before = fake.model->n_tokens();
  fake.engine->step();
  fake.engine->scheduler().check_invariants();
  return fake.model->n_tokens() - before;
}

// Those in the background give way in the first step already, and nobody's prompt is cut for their
// sake.
TEST(Background, APromptOfOthersIsTakenInWhole) {
  FakeEngineConfig config = config_of_long_prompts();
  config.engine.prefill_chunk = 16;
  FakeEngine fake(config);
  std::vector<Sent> all;
  for (int i = 0; i < 4; ++i) all.push_back(send(fake, background_request(40, i)));
  while (n_tokens(all[3]) == 0) fake.engine->step();
  all.push_back(send(fake, long_prompt(300, 9, Priority::kNormal)));
  EXPECT_EQ(tokens_of_step(fake), 300 + 1);
  EXPECT_EQ(n_tokens(all[4]), 1u);
  all.push_back(send(fake, long_prompt(100, 8, Priority::kNormal)));
  EXPECT_EQ(tokens_of_step(fake), 1 + 16 + 1);  // for the sake of another one it is
  fake.run();
  expect_whole(fake, all);
}

TEST(Background, StepsAreShortAfterOthers) {
  FakeEngine fake(config_of_long_prompts());
  std::vector<Sent> all = {send(fake, long_prompt(8, 9, Priority::kNormal))};
  fake.run();
  for (int i = 0; i < 4; ++i) all.push_back(send(fake, long_prompt(100, i, Priority::kBackground)));
  EXPECT_EQ(tokens_of_step(fake), 32);
  while (!has_ended(all.back())) EXPECT_LE(tokens_of_step(fake), 32);
  expect_whole(fake, all);
}

}  // namespace
}  // namespace penstock
