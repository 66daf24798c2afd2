// How batches are formed by the static and dynamic policies; continuous and priority:
// engine_test.cc.
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace penstock {
namespace {

FakeEngineConfig config_of(const char* policy) {
  FakeEngineConfig config;
  config.engine.policy = policy;
  config.engine.max_wait_ms = 0;
  config.engine.enable_prefix_caching = false;
  return config;
}

void submit(FakeEngine& fake, int n, int prompt_tokens) {
  for (int i = 0; i < n; ++i) {
    Request request = request_of(prompt_of(prompt_tokens, i), 4, i);
    request.sampling.ignore_eos = true;
    fake.submit(request);
  }
}

// Sequences that ran at once after each step, without repetitions.
std::vector<int> batch_sizes(FakeEngine& fake) {
  std::vector<int> sizes;
  while (fake.engine->step()) {
    const int n = fake.engine->scheduler().n_running();
    if (sizes.empty() || sizes.back() != n) sizes.push_back(n);
  }
  return sizes;
}

TEST(StaticPolicy, ABatchFillsOverSeveralSteps) {
  FakeEngineConfig config = config_of("static");
  config.n_blocks = {200};
  config.engine.max_batch_size = 6;
  config.engine.max_num_batched_tokens = 32;  // one prompt and a half
  config.engine.prefill_chunk = 32;
  FakeEngine fake(config);
  submit(fake, 10, 20);
  int most = 0;
  while (fake.engine->step()) {
    const int n = fake.engine->scheduler().n_running();
    most = std::max(most, n);
  }
  EXPECT_GT(most, 2);
  EXPECT_LE(most, 6);
}

TEST(DynamicPolicy, ABatchHasSoManyPromptTokens) {
  FakeEngineConfig config = config_of("dynamic");
  config.engine.max_tokens_per_batch = 25;
  FakeEngine fake(config);
  submit(fake, 5, 10);
  EXPECT_EQ(fake.model->largest_batch(), 0);
  fake.run();
  EXPECT_EQ(fake.model->largest_batch(), 2);
}

TEST(DynamicPolicy, ALongerPromptGetsABatchOfItsOwn) {
  FakeEngineConfig config = config_of("dynamic");
  config.engine.max_tokens_per_batch = 25;
  FakeEngine fake(config);
  submit(fake, 2, 30);
  EXPECT_EQ(batch_sizes(fake), std::vector<int>({1, 0, 1}));
}

}  // namespace
}  // namespace penstock
