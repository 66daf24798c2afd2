// Where a prompt leaves what its tenant has had before, and which tier had its tokens.
#include "engine/requests/prompt_history.h"

#include <gtest/gtest.h>

#include "engine/engine_fixture.h"
#include "formats/temp_dir.h"

namespace penstock {
namespace {

FakeEngineConfig remembering(int64_t n_tokens = 1000) {
  FakeEngineConfig config;
  config.engine.prefix_history = n_tokens;
  return config;
}

PrefixUse use_of(FakeEngine& fake, Request request) {
  const auto sink = fake.submit(std::move(request));
  fake.run();
  return sink->result.sequences.at(0).stats.prefix;
}

std::vector<TokenId> had(const PrefixUse& use) {
  return {use.had.begin(), use.had.begin() + use.n_had};
}

Request of_tenant(Request request, const char* tenant) {
  request.tenant = tenant;
  return request;
}

TEST(PromptHistory, TellsWhereAPromptLeavesAnEarlierText) {
  FakeEngine fake(remembering());
  const Request first = request_of(prompt_of(41), 4);
  EXPECT_EQ(use_of(fake, first).known_tokens, 0);
  EXPECT_EQ(use_of(fake, first).known_tokens, 41);

  Request other = first;
  other.prompt[30] = (other.prompt[30] + 1) % 50;
  PrefixUse use = use_of(fake, other);
  EXPECT_EQ(use.known_tokens, 30);
  EXPECT_EQ(use.memory_tokens, 28) << "whole blocks of 4";
  EXPECT_EQ(had(use), std::vector(first.prompt.begin() + 30, first.prompt.begin() + 38));

  // The next turn has the completion but for its last token, which was never computed.
  Request next = first;
  const std::vector<TokenId> completion = fake.expected(first);
  next.prompt.insert(next.prompt.end(), completion.begin(), completion.end());
  next.prompt.insert(next.prompt.end(), {7, 8, 9, 7, 8, 9});
  use = use_of(fake, next);
  EXPECT_EQ(use.known_tokens, 41 + std::ssize(completion) - 1);
  EXPECT_EQ(use.n_had, 0);
  EXPECT_EQ(use.memory_tokens, use.known_tokens / 4 * 4);
}

TEST(PromptHistory, ComparesWithinATenantAndASaltOnly) {
  FakeEngine fake(remembering());
  const Request request = request_of(prompt_of(41), 4);
  use_of(fake, of_tenant(request, "a"));
  Request salted = of_tenant(request, "a");
  salted.cache_salt = "salt";
  for (const Request& other : {of_tenant(request, "b"), request, salted}) {
    const PrefixUse use = use_of(fake, other);
    EXPECT_EQ(use.known_tokens, 0);
    EXPECT_EQ(use.n_had, 0);
  }
  EXPECT_EQ(use_of(fake, of_tenant(request, "a")).known_tokens, 41);
}

TEST(PromptHistory, KnowsWhatTheCacheHasLost) {
  FakeEngine fake(remembering());
  const Request request = request_of(prompt_of(41), 4);
  use_of(fake, request);
  fake.engine->reset_prefix_cache();
  const PrefixUse use = use_of(fake, request);
  EXPECT_EQ(use.known_tokens, 41);
  EXPECT_EQ(use.memory_tokens, 0);
}

TEST(PromptHistory, TellsTheTiers) {
  const TempDir folder;
  FakeEngineConfig config = remembering();
  config.store.path = folder.path(), config.store.max_bytes = int64_t{1} << 20;
  const Request request = request_of(prompt_of(41), 4);
  for (const int round : {0, 1}) {
    FakeEngine fake(config, 1);
    PrefixUse use = use_of(fake, request);
    EXPECT_EQ(use.store_tokens, round * 40);
    EXPECT_GT(use.load_seconds, 0) << "an empty store is asked, too";
    EXPECT_EQ(use.memory_tokens, 0);
    use = use_of(fake, request);
    EXPECT_EQ(use.store_tokens, 0);
    EXPECT_EQ(use.memory_tokens, 40);
    const Metrics metrics = fake.engine->metrics();
    EXPECT_EQ(metrics.prompt_tokens_from_store.value, round * 40);
    EXPECT_EQ(metrics.prompt_tokens_from_memory.value, 40);
    EXPECT_GE(metrics.kv_store_wait_seconds.value, use.load_seconds);
  }
}

TEST(PromptHistory, ChoicesAreToldLikeTheFirst) {
  FakeEngine fake(remembering());
  Request request = request_of(prompt_of(41), 4);
  use_of(fake, request);
  request.sampling.n = 3;
  const auto sink = fake.submit(request);
  fake.run();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(sink->result.sequences.at(i).stats.prefix.known_tokens, 41) << i;
}

TEST(PromptHistory, IsOffUnlessAskedFor) {
  FakeEngine fake(remembering(0));
  const Request request = request_of(prompt_of(41), 4);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(use_of(fake, request).known_tokens, -1);
}

// A history with sequences that are not an engine's.
struct Alone {
  PromptHistory history;
  uint64_t next = 1;
  int known(const std::string& tenant, const std::vector<TokenId>& tokens) {
    RequestState request;
    request.request.tenant = tenant;
    Running sequence;
    sequence.id = SeqId(next++);
    sequence.request = &request;
    sequence.tokens = tokens;
    sequence.n_prompt = sequence.n_computed = static_cast<int>(tokens.size());
    history.begin(sequence);
    history.end(sequence);
    return sequence.stats.prefix.known_tokens;
  }
};

TEST(PromptHistory, IsBoundedAndTheLargestTenantGivesWay) {
  Alone alone{PromptHistory(1000)};
  const std::vector<TokenId> small = prompt_of(100, 1);
  EXPECT_EQ(alone.known("small", small), 0);
  for (int i = 0; i < 50; ++i) {
    alone.known("large", prompt_of(150, 2 + i));
    EXPECT_LE(alone.history.n_tokens(), 1000);
  }
  EXPECT_EQ(alone.known("small", small), 100) << "another tenant's prompts do not displace it";
  EXPECT_EQ(alone.known("small", prompt_of(1001, 1)), 100) << "compared, and not kept";
  EXPECT_EQ(alone.known("small", prompt_of(1001, 1)), 100);
  for (int i = 0; i < 2000; ++i) alone.known(std::to_string(i), {1});
  EXPECT_LE(alone.history.n_tokens(), 1000);
}

}  // namespace
}  // namespace penstock
