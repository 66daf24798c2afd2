// Preemption that keeps blocks outside: memory, a file, and everything that can go wrong with one.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "engine/engine_fixture.h"
#include "engine/files/swap_stores.h"

namespace penstock {
namespace {

FakeEngineConfig tight(int n_slots) {
  FakeEngineConfig config;
  config.n_blocks = {20};
  config.max_model_len = 80;
  config.engine.enable_prefix_caching = false;
  config.swap_slots = {n_slots};
  return config;
}

SwapLayout layout_of(const FakeEngineConfig& config) {
  SwapLayout layout;
  layout.n_slots = config.swap_slots;
  layout.block_bytes.assign(layout.n_slots.size(), FakeModel::kBlockBytes * config.block_size);
  return layout;
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

TEST(Swap, WhatComesBackNeedNotBeComputed) {
  FakeEngineConfig config = tight(0);
  config.swap_slots.clear();
  FakeEngine recomputes(config);
  EXPECT_GT(run(recomputes).num_preemptions.value, 0);
  const FakeEngineConfig wide = tight(200);
  FakeEngine swaps(wide, 0, make_memory_swap(layout_of(wide)).value());
  const Metrics metrics = run(swaps);
  EXPECT_GT(metrics.swapped_in_blocks.value, 20);
  EXPECT_LE(metrics.swapped_in_blocks.value, metrics.swapped_out_blocks.value);
  EXPECT_EQ(metrics.swap_errors.value, 0);
  const int64_t needed =
      9 * 39 + (10 + 17) * 4;  // every token but the last of each sequence, the prompts once
  EXPECT_EQ(swaps.model->n_tokens(), needed);
  EXPECT_GT(recomputes.model->n_tokens(), needed);
}

TEST(Swap, WithoutRoomASequenceStartsOver) {
  for (const int n_slots : {0, 1, 5, 12}) {
    const FakeEngineConfig config = tight(n_slots);
    FakeEngine fake(config, 0, make_memory_swap(layout_of(config)).value());
    EXPECT_GT(run(fake).num_preemptions.value, 0) << n_slots;
  }
}

TEST(Swap, ToAFile) {
  FakeEngineConfig config = tight(100);
  config.n_blocks = {20, 20};
  config.windows = {0, 9};
  config.swap_slots = {100, 100};
  FakeEngine fake(config, 0, make_file_swap(layout_of(config), ::testing::TempDir()).value());
  EXPECT_GT(run(fake).swapped_in_blocks.value, 10);
}

TEST(Swap, AFolderThatIsNotThereIsAnError) {
  const auto store = make_file_swap(layout_of(tight(3)), "/nowhere");
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message.find("/nowhere"), std::string::npos);
}

TEST(Swap, MemoryThatCannotBeHadIsAnError) {
  SwapLayout layout;
  layout.n_slots = {1 << 30};
  layout.block_bytes = {int64_t{1} << 30};  // 2^60 bytes: more than there are addresses
  const auto store = make_memory_swap(layout);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::kResourceExhausted);
}

// A disk with room for 10 slots.
TEST(Swap, AFullDiskCostsTimeNotText) {
  const FakeEngineConfig config = tight(100);
  const SwapLayout layout = layout_of(config);
  auto store = make_file_swap(layout, ::testing::TempDir()).value();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{static_cast<rlim_t>(10 * layout.block_bytes[0]), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  FakeEngine fake(config, 0, std::move(store));
  const Metrics metrics = run(fake);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_GT(metrics.swap_errors.value, 0);
  EXPECT_GT(metrics.swapped_out_blocks.value, 0);
}

class Flaky : public SwapStore {
 public:
  Flaky(const SwapLayout& layout, int fails_write, int fails_read)
      : store_(make_memory_swap(layout).value()),
        fails_write_(fails_write),
        fails_read_(fails_read) {}
  Status write(int group, int slot, std::span<const std::byte> bytes) override {
    if (++n_written_ % fails_write_ == 0) return make_error(ErrorCode::kIo, "no write");
    return store_->write(group, slot, bytes);
  }
  Status read(int group, int slot, std::span<std::byte> bytes) override {
    if (++n_read_ % fails_read_ == 0) return make_error(ErrorCode::kIo, "no read");
    return store_->read(group, slot, bytes);
  }

 private:
  std::unique_ptr<SwapStore> store_;
  int fails_write_, fails_read_, n_written_ = 0, n_read_ = 0;
};

TEST(Swap, EveryPatternOfFailuresKeepsTheText) {
  for (const int fails_write : {1, 2, 7, 1000000}) {
    for (const int fails_read : {1, 3, 11}) {
      FakeEngineConfig config = tight(60);
      config.engine.enable_prefix_caching = fails_read == 3;
      FakeEngine fake(config, 0,
                      std::make_unique<Flaky>(layout_of(config), fails_write, fails_read));
      EXPECT_GT(run(fake).swap_errors.value, 0) << fails_write << " " << fails_read;
    }
  }
}

// A sequence as large as the cache comes back while a block is still kept for it, in which it parts
// from one that has ended: nothing runs that could make room, and the kept block is given up
// instead.
TEST(Swap, ComesBackBesideABlockThatIsKeptForIt) {
  FakeEngineConfig config = tight(10);
  config.n_blocks = {10};
  config.max_model_len = 40;
  config.engine.enable_prefix_caching = true;
  config.engine.policy = "priority";
  FakeEngine fake(config, 0, make_memory_swap(layout_of(config)).value());
  Request large = request_of(prompt_of(30), 10), urgent = request_of(prompt_of(2), 2);
  large.sampling.ignore_eos = urgent.sampling.ignore_eos = true;
  large.priority = Priority::kLow, urgent.priority = Priority::kHigh;
  urgent.prompt.push_back(49);
  const auto large_sink = fake.submit(large);
  while (fake.engine->scheduler().allocator().n_referenced() < 10) ASSERT_TRUE(fake.engine->step());
  const auto urgent_sink = fake.submit(urgent);
  fake.run();
  EXPECT_EQ(urgent_sink->result.sequences[0].tokens, fake.expected(urgent));
  EXPECT_EQ(large_sink->result.sequences[0].tokens, fake.expected(large));
  const Metrics metrics = fake.engine->metrics();
  EXPECT_EQ(metrics.num_preemptions.value, 1);
  EXPECT_EQ(metrics.swapped_out_blocks.value, 10);
  EXPECT_GT(metrics.swapped_in_blocks.value, 0);
  EXPECT_LT(metrics.swapped_in_blocks.value, 10) << "what the cache still has is not read back";
  EXPECT_EQ(fake.model->n_tokens(), 39 + 4) << "nothing was computed twice";
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
