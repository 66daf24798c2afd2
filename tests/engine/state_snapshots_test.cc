// Snapshots of states: where they are taken, and what equal prefixes save by them.
#include "engine/schedule/state_snapshots.h"

#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace penstock {
namespace {

constexpr int kTokensPerBlock = 16;

Sequence sequence_of(int n_prompt, int n_computed = 0) {
  Sequence sequence;
  sequence.tokens.assign(n_prompt, 1);
  sequence.n_prompt = n_prompt;
  sequence.n_computed = n_computed;
  return sequence;
}

TEST(StateSnapshots, APromptIsCutBehindItsLastFullBlock) {
  const StateSnapshots snapshots(kTokensPerBlock, 0);
  EXPECT_EQ(snapshots.cut(sequence_of(1000), 1000), 992);
  EXPECT_EQ(snapshots.cut(sequence_of(1000, 992), 8), 8);
  // one token is left to whoever has the same prompt
  EXPECT_EQ(snapshots.cut(sequence_of(992), 992), 976);
  EXPECT_EQ(snapshots.cut(sequence_of(60), 60), 60);  // not worth a step
  EXPECT_EQ(snapshots.cut(sequence_of(1000), 1), 1);
}

TEST(StateSnapshots, AStepThatEndsForWantOfRoomEndsAtABlock) {
  const StateSnapshots snapshots(kTokensPerBlock, 0);
  EXPECT_EQ(snapshots.cut(sequence_of(1000, 5), 100), 91);
  EXPECT_EQ(snapshots.cut(sequence_of(1000, 17), 7), 7);  // none ends there
}

TEST(StateSnapshots, APromptIsCutWhereItPartsFromOthers) {
  const StateSnapshots snapshots(kTokensPerBlock, 0);
  Sequence sequence = sequence_of(1000, 32);
  snapshots.note_parting(sequence, 30);
  EXPECT_EQ(snapshots.cut(sequence, 968), 448);
  snapshots.note_parting(sequence, 5);  // 48 tokens on from what was found: too near
  EXPECT_EQ(snapshots.cut(sequence, 968), 960);
}

TEST(StateSnapshots, AreDueBehindFullBlocksOfThePromptAndFarEnoughApart) {
  const StateSnapshots snapshots(kTokensPerBlock, 0);
  EXPECT_TRUE(snapshots.is_due(sequence_of(1000, 96)));
  EXPECT_FALSE(snapshots.is_due(sequence_of(1000, 97)));
  EXPECT_FALSE(snapshots.is_due(sequence_of(1000, 48)));
  EXPECT_FALSE(snapshots.is_due(sequence_of(90, 96)));  // generated
  Sequence sequence = sequence_of(1000, 128);
  sequence.n_snapshot = 96;
  EXPECT_FALSE(snapshots.is_due(sequence));
}

TEST(StateSnapshots, WhatIsComputedAgainIsNotCut) {
  const StateSnapshots snapshots(kTokensPerBlock, 32);
  Sequence sequence = sequence_of(1000);
  sequence.n_preemptions = 1;
  EXPECT_EQ(snapshots.cut(sequence, 1000), 1000);
  EXPECT_EQ(snapshots.cut(sequence, 100), 100);
}

TEST(StateSnapshots, AnIntervalTakesThemWhileDecodingToo) {
  const StateSnapshots snapshots(kTokensPerBlock, 30);  // of whole blocks
  EXPECT_EQ(snapshots.cut(sequence_of(1000), 1000), 32);
  EXPECT_TRUE(snapshots.is_due(sequence_of(20, 64)));
  EXPECT_FALSE(snapshots.is_due(sequence_of(20, 80)));
}

// --- In the engine

constexpr int kCommonStart = 1000, kAnswer = 4;

class SharedStates : public ::testing::Test {
 protected:
  SharedStates() {
    config_.block_size = kTokensPerBlock;
    config_.n_blocks = {400, 40};
    config_.windows = {0, kStateWindow};
    config_.max_model_len = 1300;
    config_.engine.max_num_seqs = 16;
    config_.engine.max_num_batched_tokens = 512;
  }
  // Of the family, kCommonStart common tokens and then own ones.
  static Request one_of(int i, int n_own) {
    std::vector<TokenId> prompt;
    for (int t = 0; t < kCommonStart + n_own; ++t)
      prompt.push_back(
          t == kCommonStart
              ? i + 1
              : static_cast<TokenId>(1 + mix_seed(t < kCommonStart ? 1 : 100 + i, t) % 49));
    Request request = request_of(prompt, kAnswer, i);
    request.sampling.ignore_eos = true;
    return request;
  }
  // How many tokens the model computed for it.
  static int64_t run(FakeEngine& fake, const Request& request) {
    const int64_t before = fake.model->n_tokens();
    const auto sink = fake.submit(request);
    fake.run();
    EXPECT_EQ(sink->result.sequences.at(0).tokens, fake.expected(request));
    return fake.model->n_tokens() - before;
  }
  FakeEngineConfig config_;
};

TEST_F(SharedStates, TheSamePromptGoesOnFromItsLastFullBlock) {
  FakeEngine fake(config_);
  EXPECT_EQ(run(fake, one_of(1, 100)), 1100 + kAnswer - 1);
  EXPECT_EQ(run(fake, one_of(1, 100)), 1100 - 1088 + kAnswer - 1);
}

TEST_F(SharedStates, AConversationGoesOnFromItsLastPrompt) {
  FakeEngine fake(config_);
  Request request = one_of(1, 100);
  run(fake, request);
  const auto answer = fake.expected(request);
  request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
  request.prompt.insert(request.prompt.end(), 50, 3);
  EXPECT_EQ(run(fake, request), 12 + kAnswer + 50 + kAnswer - 1);
}

// The first knows nothing of others; the second parts from it and keeps its state there; the third
// goes on from it.
TEST_F(SharedStates, PromptsThatPartLeaveASnapshotWhereTheyDo) {
  FakeEngine fake(config_);
  config_.engine.max_num_batched_tokens = 2048;
  FakeEngine whole(config_);
  for (FakeEngine* engine : {&fake, &whole}) {
    run(*engine, one_of(1, 200));
    const int64_t second = run(*engine, one_of(2, 200));
    EXPECT_LE(second, 1200 + kAnswer - 1);
    EXPECT_EQ(run(*engine, one_of(3, 200)), 1200 - 992 + kAnswer - 1);
  }
}

TEST_F(SharedStates, ThoseThatComeTogetherWaitForTheFirst) {
  FakeEngine fake(config_);
  std::vector<std::shared_ptr<Collector>> sinks;
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(one_of(i, 100));
    sinks.push_back(fake.submit(requests.back()));
  }
  fake.run();
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(sinks[i]->result.sequences.at(0).tokens, fake.expected(requests[i])) << i;
  // Two compute what is common at most: the first, and the second, which may not have known where
  // they part.
  EXPECT_LE(fake.model->n_tokens(), 2 * 992 + 8 * (108 + kAnswer - 1));
}

TEST_F(SharedStates, WithOneStateThereIsNoneToKeep) {
  config_.n_blocks = {400, 1};
  FakeEngine fake(config_);
  EXPECT_EQ(run(fake, one_of(1, 100)), 1100 + kAnswer - 1);
  EXPECT_EQ(run(fake, one_of(1, 100)), 1100 + kAnswer - 1);
}

TEST_F(SharedStates, NothingIsKeptWithoutPrefixCaching) {
  config_.engine.enable_prefix_caching = false;
  FakeEngine fake(config_);
  run(fake, one_of(1, 100));
  EXPECT_EQ(run(fake, one_of(1, 100)), 1100 + kAnswer - 1);
}

}  // namespace
}  // namespace penstock
