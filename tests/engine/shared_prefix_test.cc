// Requests that share a prefix and arrive together: it is computed once, also while nobody has
// finished it.
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace penstock {
namespace {

constexpr int kShared = 1000, kOwn = 8, kNew = 4, kRequests = 16;
constexpr int kPrompt = kShared + kOwn;

Request one_of(int i) {
  std::vector<TokenId> prompt;
  for (int t = 0; t < kPrompt; ++t) {
    const uint64_t family = t < kShared ? 1 : 100 + i;
    prompt.push_back(t == kShared ? i + 1 : static_cast<TokenId>(1 + mix_seed(family, t) % 49));
  }
  Request request = request_of(prompt, kNew, i);
  request.sampling.ignore_eos = true;
  return request;
}

class SharedPrefix : public ::testing::TestWithParam<int> {  // tokens per step
 protected:
  SharedPrefix() {
    config_.block_size = 16;
    config_.n_blocks = {200};
    config_.max_model_len = 1100;
    config_.engine.max_num_seqs = kRequests;
    config_.engine.max_num_batched_tokens = GetParam();
    config_.engine.prefill_chunk = 64;
  }
  struct Sent {
    Request request;
    RequestId id;
    std::shared_ptr<Collector> sink;
  };
  void send(FakeEngine& fake, const Request& request) {
    Sent& sent = sent_.emplace_back(Sent{request, {}, nullptr});
    sent.sink = fake.submit(request, &sent.id);
  }
  void expect_texts(const FakeEngine& fake, size_t first = 0) const {
    for (size_t i = first; i < sent_.size(); ++i)
      EXPECT_EQ(sent_[i].sink->result.sequences.at(0).tokens, fake.expected(sent_[i].request)) << i;
  }
  FakeEngineConfig config_;
  std::vector<Sent> sent_;
};

// Every request computes its own end and its new tokens but the last; the prefix is computed once.
constexpr int64_t computed(int n_prefixes, int n_requests) {
  return int64_t{n_prefixes} * kShared + int64_t{n_requests} * (kOwn + kNew - 1);
}

TEST_P(SharedPrefix, SixteenAtOnceComputeItOnce) {
  FakeEngine fake(config_);
  for (int i = 0; i < kRequests; ++i) send(fake, one_of(i));
  fake.run();
  expect_texts(fake);
  EXPECT_EQ(fake.model->n_tokens(), computed(1, kRequests));
}

TEST_P(SharedPrefix, ThoseThatComeWhileItIsComputedWaitForIt) {
  FakeEngine fake(config_);
  send(fake, one_of(0));
  fake.engine->step();
  for (int i = 1; i < kRequests; ++i) {
    send(fake, one_of(i));
    if (i % 4 == 0) fake.engine->step();
  }
  fake.run();
  expect_texts(fake);
  EXPECT_EQ(fake.model->n_tokens(), computed(1, kRequests));
}

TEST_P(SharedPrefix, WhenTheFirstIsCancelledAnotherGoesOnFromWhereItWas) {
  FakeEngine fake(config_);
  for (int i = 0; i < kRequests; ++i) send(fake, one_of(i));
  fake.engine->step();
  const int64_t before = fake.model->n_tokens();
  fake.engine->cancel(sent_[0].id, FinishReason::kAbort);
  fake.run();
  expect_texts(fake, 1);
  if (before < kShared) {
    EXPECT_EQ(before % config_.block_size, 0);
    EXPECT_EQ(fake.model->n_tokens(), computed(1, kRequests - 1));
  } else {  // it had computed its own end too
    EXPECT_EQ(fake.model->n_tokens(), before + computed(0, kRequests - 1));
  }
}

// Each ends in the step that computes its prompt: the others copy from the block it leaves behind.
TEST_P(SharedPrefix, AlsoByThoseWhoEndWithTheirFirstToken) {
  FakeEngine fake(config_);
  for (int i = 0; i < kRequests; ++i) {
    Request request = one_of(i);
    request.sampling.max_tokens = 1;
    send(fake, request);
  }
  fake.run();
  expect_texts(fake);
  EXPECT_EQ(fake.model->n_tokens(), kShared + kRequests * kOwn);
  EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
}

TEST_P(SharedPrefix, TenantsShareNothing) {
  config_.n_blocks = {400};
  FakeEngine fake(config_);
  for (int i = 0; i < kRequests; ++i) {
    Request request = one_of(i);
    request.cache_salt = i % 2 == 0 ? "one" : "other";
    request.sampling.max_tokens = 40;  // a tenant's first request outlives the other's prefix
    send(fake, request);
  }
  fake.run();
  expect_texts(fake);
  EXPECT_EQ(fake.model->n_tokens(), computed(2, kRequests) + kRequests * (40 - kNew));
}

TEST_P(SharedPrefix, WithoutACacheEveryoneComputesIt) {
  config_.engine.enable_prefix_caching = false;
  config_.n_blocks = {1200};
  FakeEngine fake(config_);
  for (int i = 0; i < kRequests; ++i) send(fake, one_of(i));
  fake.run();
  expect_texts(fake);
  EXPECT_EQ(fake.model->n_tokens(), computed(kRequests, kRequests));
}

INSTANTIATE_TEST_SUITE_P(TokensPerStep, SharedPrefix, ::testing::Values(128, 496, 4096));

}  // namespace
}  // namespace penstock
