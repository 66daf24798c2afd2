// The stages of a pipeline compute steps of different sequences at the same time: who is in which,
// and that nobody notices.
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"
#include "engine/ranks/rank_grid.h"

namespace penstock {
namespace {

FakeEngineConfig in_stages(int n_stages) {
  FakeEngineConfig config;
  config.n_stages = n_stages;
  return config;
}

Request staged_request(int seed, int n_prompt = 5, int n_tokens = 40) {
  Request request = request_of(prompt_of(n_prompt, seed), n_tokens, seed);
  request.sampling.ignore_eos = true;
  return request;
}

// Runs the requests together, each to its own text.
void run_staged(FakeEngine& fake, const std::vector<Request>& requests) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const Request& request : requests) sinks.push_back(fake.submit(request));
  fake.run();
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int k = 0; k < requests[i].sampling.n; ++k) {
      EXPECT_EQ(sinks[i]->result.sequences[k].tokens, fake.expected(requests[i], k))
          << i << ", " << k;
      EXPECT_EQ(sinks[i]->result.sequences[k].n_ends, 1);
    }
  }
  EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
}

TEST(Pipeline, SequencesThatDecodeAreSharedOutOverTheStages) {
  FakeEngine fake(in_stages(2));
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(staged_request(i));
  run_staged(fake, requests);
  EXPECT_GE(fake.model->most_under_way(), 2);
  // 39 tokens of 8 sequences behind their first, four in a step while all are there; they begin and
  // end one after the other.
  EXPECT_GE(fake.model->n_steps(), 2 * 39);
  EXPECT_LE(fake.model->n_steps(), 2 * 39 + 30);
}

TEST(Pipeline, OneSequenceIsInOneStageAtATime) {
  FakeEngine fake(in_stages(3));
  run_staged(fake, {staged_request(1)});
  EXPECT_EQ(fake.model->most_under_way(), 1);
  EXPECT_EQ(fake.model->n_steps(), 40);
}

TEST(Pipeline, ThePartsOfOnePromptFollowOneAnother) {
  FakeEngineConfig config = in_stages(2);
  config.max_model_len = 600;
  config.n_blocks = {200};
  config.engine.max_num_batched_tokens = 512;
  FakeEngine fake(config);
  run_staged(fake, {staged_request(1, 500, 4)});
  EXPECT_EQ(fake.model->most_under_way(), 3);
  EXPECT_GE(fake.model->n_steps(), 4 + 4);
}

TEST(Pipeline, WhoComesLaterAndWhoIsCancelled) {
  FakeEngine fake(in_stages(2));
  std::vector<RequestId> ids(6);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(staged_request(i, 4 + 3 * i, 30));
    sinks.push_back(fake.submit(requests.back(), &ids[static_cast<size_t>(i)]));
    for (int k = 0; k < 3; ++k) fake.engine->step();
    if (i % 2 == 1) fake.engine->cancel(ids[static_cast<size_t>(i) - 1], FinishReason::kAbort);
  }
  fake.run();
  for (size_t i = 0; i < 6; ++i) {
    std::vector<TokenId> expected = fake.expected(requests[i]);
    const auto& got = sinks[i]->result.sequences[0];
    EXPECT_EQ(got.n_ends, 1);
    if (i % 2 == 0) expected.resize(got.tokens.size());
    EXPECT_EQ(got.tokens, expected) << i;
  }
  EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
}

TEST(Pipeline, SequencesThatLoseTheirBlocksWhileAStepHasThem) {
  FakeEngineConfig config = in_stages(2);
  config.n_blocks = {18};
  config.max_model_len = 60;
  FakeEngine fake(config);
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(staged_request(i, 5, 30));
  run_staged(fake, requests);
  EXPECT_GT(fake.engine->metrics().num_preemptions.value, 0);
}

TEST(Pipeline, AFailureEndsAll) {
  FakeEngine fake(in_stages(2));
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 4; ++i) sinks.push_back(fake.submit(staged_request(i)));
  for (int k = 0; k < 5; ++k) fake.engine->step();
  fake.model->fail("rank 1 of 2 is gone");
  fake.run();
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->result.sequences[0].n_ends, 1);
    EXPECT_EQ(sink->result.sequences[0].finish, FinishReason::kError);
  }
}

TEST(RankGrid, WhatGoesFromStageToStageGoesAround) {
  const RankGrid grid{2, 3};
  EXPECT_EQ(grid.size(), 6);
  std::vector<int> stage, before, behind;
  for (int rank = 0; rank < 6; ++rank) {
    stage.push_back(grid.stage_of(rank).index);
    before.push_back(grid.before(rank));
    behind.push_back(grid.behind(rank));
  }
  EXPECT_EQ(stage, (std::vector<int>{2, 2, 0, 0, 1, 1}));
  EXPECT_EQ(before, (std::vector<int>{4, 5, -1, -1, 2, 3}));
  EXPECT_EQ(behind, (std::vector<int>{-1, -1, 4, 5, 0, 1}));
  const RankGrid alone{4, 1};
  EXPECT_TRUE(alone.stage_of(3).first() && alone.stage_of(3).last());
  EXPECT_EQ(alone.before(1), -1);
}

}  // namespace
}  // namespace penstock
