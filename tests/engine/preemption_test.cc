// Sequences that lose their blocks: they are computed again, from what the cache or a store has.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine_fixture.h"

namespace penstock {
namespace {

FakeEngineConfig tight(int64_t memory_bytes) {
  FakeEngineConfig config;
  config.n_blocks = {20};
  config.max_model_len = 80;
  config.store.memory_bytes = memory_bytes;
  return config;
}

// Runs requests that do not fit together and compares their text; returns the metrics.
Metrics run(FakeEngine& fake) {
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(request_of(prompt_of(10 + i, i), 40, i));
    requests.back().sampling.ignore_eos = true;
    requests.back().sampling.n = i == 3 ? 2 : 1;
    sinks.push_back(fake.submit(requests.back()));
  }
  fake.run();
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int j = 0; j < requests[i].sampling.n; ++j)
      EXPECT_EQ(sinks[i]->result.sequences[j].tokens, fake.expected(requests[i], j))
          << i << " " << j;
  }
  EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
  return fake.engine->metrics();
}

// Returns how many blocks an engine of this configuration reads, at best of those that are tried
// until it is more than `enough`: the model computes at once, so that on a busy machine no block
// comes in time.
double blocks_read(const FakeEngineConfig& config, double enough) {
  double n = 0;
  for (int i = 0; i < 100 && n <= enough; ++i) {
    FakeEngine fake(config);
    const Metrics metrics = run(fake);
    EXPECT_GT(metrics.num_preemptions.value, 0);
    n = std::max(n, metrics.kv_store_read_blocks.value);
  }
  return n;
}

// Of each sequence, what does not fill a block is computed again, and what was not copied in time.
TEST(Preemption, WhatMemoryKeepsNeedNotBeComputed) {
  FakeEngine recomputes(tight(0));
  EXPECT_GT(run(recomputes).num_preemptions.value, 0);
  EXPECT_GT(blocks_read(tight(1 << 20), 20), 20);
}

TEST(Preemption, AStoreOfAnySizeKeepsTheText) {
  const int64_t image = BlockImages({}, 4, std::vector{FakeModel::kBlockBytes * 4}).bytes(0);
  for (const int n_blocks : {1, 2, 5, 12, 40}) {
    FakeEngine fake(tight(n_blocks * image));
    EXPECT_GT(run(fake).num_preemptions.value, 0) << n_blocks;
  }
}

TEST(Preemption, WindowsComeBackToo) {
  FakeEngineConfig config = tight(1 << 20);
  config.n_blocks = {20, 20};
  config.windows = {0, 9};
  EXPECT_GT(blocks_read(config, 10), 10);
}

// What the store is asked for again is not ready, and takes nobody's place meanwhile.
TEST(Preemption, NobodyMakesWayForASequenceWhoseBlocksWereEvicted) {
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 32},
                      make_policy("continuous", PolicyConfig{}).value(), std::vector{40},
                      std::vector{0}, 4);
  const auto sequence_of = [&](int n, Priority priority, uint64_t order) {
    Sequence sequence;
    sequence.tokens = prompt_of(n, static_cast<int>(order));
    sequence.n_prompt = n, sequence.max_len = n + 10;
    sequence.priority = priority, sequence.arrival_order = order;
    sequence.root = root_hash("");
    return sequence;
  };
  Sequence first = sequence_of(9, Priority::kBackground, 1),
           second = sequence_of(9, Priority::kNormal, 2);
  Plan plan;
  scheduler.add(first);
  scheduler.next(0, 100, plan);
  ASSERT_EQ(first.state, SeqState::kRunning);
  scheduler.commit(plan);
  scheduler.append(first, 3);
  second.n_asked = 1, second.n_seen = 2;  // of which nothing is left
  scheduler.add(second);
  scheduler.next(0, 100, plan);
  EXPECT_TRUE(plan.preempted.empty());
  EXPECT_EQ(plan.lost, std::vector<Sequence*>{&second});
  scheduler.commit(plan);
  scheduler.append(first, 4);
  scheduler.next(0, 100, plan);
  EXPECT_TRUE(plan.lost.empty());
  EXPECT_EQ(second.state, SeqState::kRunning);
  scheduler.finish(first);
  scheduler.finish(second);
}

TEST(Preemption, WithoutAPrefixCacheASequenceStartsOver) {
  FakeEngineConfig config = tight(1 << 20);
  config.engine.enable_prefix_caching = false;
  FakeEngine fake(config);
  const Metrics metrics = run(fake);
  EXPECT_GT(metrics.num_preemptions.value, 0);
  EXPECT_EQ(metrics.kv_store_read_blocks.value, 0);
}

TEST(Contiguous, ReservesOneRunPerSequence) {
  FakeEngineConfig config;
  config.n_blocks = {62};
  config.max_model_len = 80;  // 20 blocks
  config.engine.kv_layout = "contiguous";
  FakeEngine fake(config);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 9; ++i) {
    requests.push_back(request_of(prompt_of(3 + 5 * i, i), 20, i));
    sinks.push_back(fake.submit(requests.back()));
  }
  int most = 0;
  bool busy = true;
  while (busy) {
    busy = fake.engine->step();
    const Scheduler& scheduler = fake.engine->scheduler();
    scheduler.check_invariants();
    most = std::max(most, scheduler.n_running());
    for (const Sequence* sequence : scheduler.running()) {
      const std::vector<BlockId>& blocks = sequence->kv[0].blocks;
      ASSERT_EQ(blocks.size(), 20u);
      for (size_t b = 1; b < blocks.size(); ++b)
        EXPECT_EQ(static_cast<uint32_t>(blocks[b]), static_cast<uint32_t>(blocks[0]) + b);
    }
  }
  EXPECT_EQ(most, 3);
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(sinks[i]->result.sequences[0].tokens, fake.expected(requests[i]));
}

}  // namespace
}  // namespace penstock
