// Cached blocks in memory: what is kept, what goes first, and stores in a row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "engine/kept_block.h"
#include "engine/store/block_folder.h"
#include "engine/store/block_memory.h"
#include "engine/store/block_tiers.h"
#include "engine/store/kv_store.h"
#include "formats/temp_dir.h"

namespace penstock {
namespace {

// A store with room for n blocks of each group.
std::shared_ptr<BlockMemory> memory_of(int n) {
  const BlockImages images = redis_images();
  return BlockMemory::open(n * (images.bytes(0) + images.bytes(1)), images, std::vector{7, 7})
      .value();
}

bool has(const BlockStore& store, const Kept& block) {
  BlockImage image;
  return store.read(block.key, block.tokens, image) && image == block.image;
}

TEST(BlockMemory, GivesBackWhatWasWritten) {
  const auto memory = memory_of(3);
  for (const Kept& block : {Kept(1), Kept(2), Kept(1, 1)}) {
    EXPECT_FALSE(memory->contains(block.key));
    EXPECT_FALSE(memory->touch(block.key));
    BlockImage image;
    EXPECT_EQ(code_of(memory->read(block.key, block.tokens, image)), ErrorCode::kNotFound);
    ASSERT_TRUE(memory->write(block.key, block.image));
    ASSERT_TRUE(memory->write(block.key, block.image));
    EXPECT_TRUE(memory->contains(block.key));
    EXPECT_TRUE(memory->is_at_hand(block.key));
    EXPECT_TRUE(has(*memory, block));
    const std::vector<TokenId> others(kTokensOfBlock, 77);
    EXPECT_EQ(code_of(memory->read(block.key, others, image)), ErrorCode::kCorruptFile);
  }
}

TEST(BlockMemory, TheLeastRecentlyUsedOfAGroupGoesFirst) {
  const auto memory = memory_of(3);
  ASSERT_EQ(memory->n_slots(0), 3);
  ASSERT_EQ(memory->n_slots(1), 3);
  const Kept other(1, 1);
  ASSERT_TRUE(memory->write(other.key, other.image));
  const std::vector<Kept> blocks = {Kept(0), Kept(1), Kept(2), Kept(3), Kept(4)};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(memory->write(blocks[i].key, blocks[i].image));
  EXPECT_TRUE(memory->touch(blocks[0].key));
  EXPECT_TRUE(has(*memory, blocks[1]));
  ASSERT_TRUE(memory->write(blocks[3].key, blocks[3].image));
  EXPECT_FALSE(memory->contains(blocks[2].key));
  ASSERT_TRUE(memory->write(blocks[4].key, blocks[4].image));
  EXPECT_FALSE(memory->contains(blocks[0].key));
  for (const int i : {1, 3, 4}) EXPECT_TRUE(has(*memory, blocks[i])) << i;
  EXPECT_TRUE(has(*memory, other));
}

TEST(BlockMemory, GroupsHaveSharesByTheirBlocks) {
  constexpr int64_t kBytes = 64 << 20;
  const BlockImages images = redis_images();
  const auto memory = BlockMemory::open(kBytes, images, std::vector{90, 10}).value();
  EXPECT_GT(memory->n_slots(0), 8 * memory->n_slots(1));
  EXPECT_LT(memory->n_slots(0), 10 * memory->n_slots(1));
  const int64_t taken = memory->n_slots(0) * images.bytes(0) + memory->n_slots(1) * images.bytes(1);
  EXPECT_LE(taken, kBytes);
  EXPECT_GT(taken, kBytes - 2 * (images.bytes(0) + images.bytes(1)));
}

TEST(BlockMemory, WhatCannotBeHadIsAnError) {
  const BlockImages images = redis_images();
  const auto small = BlockMemory::open(images.bytes(0), images, std::vector{1, 1});
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, ErrorCode::kInvalidArgument);
  const auto large = BlockMemory::open(int64_t{1} << 60, images, std::vector{1, 1});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::kInvalidArgument);
}

TEST(BlockMemory, ThreadsDoNotDisturbEachOther) {
  const auto memory = memory_of(4);
  std::vector<Kept> blocks;
  for (int i = 0; i < 12; ++i) blocks.emplace_back(i, i % 2);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3000; ++i) {
        const Kept& block = blocks[static_cast<size_t>((i * (t + 1)) % 12)];
        BlockImage image;
        if (t == 0) {
          EXPECT_TRUE(memory->write(block.key, block.image));
        } else if (memory->read(block.key, block.tokens, image)) {
          EXPECT_EQ(image, block.image);
        }
      }
    });
  }
}

TEST(BlockTiers, ThreeInARow) {
  const TempDir near_dir, far_dir;
  const auto memory = memory_of(2);
  const auto open = [](const TempDir& dir) {
    return std::make_shared<BlockFolder>(
        BlockFolder::open(dir.path(), int64_t{1} << 30, redis_images()).value());
  };
  const auto near = open(near_dir), far = open(far_dir);
  BlockTiers tiers({memory, near, far});
  const std::vector<Kept> blocks = {Kept(0), Kept(1), Kept(2)};
  for (const Kept& block : blocks) ASSERT_TRUE(tiers.write(block.key, block.image));
  EXPECT_FALSE(memory->contains(blocks[0].key));
  EXPECT_TRUE(tiers.is_far(blocks[0].key));
  EXPECT_FALSE(tiers.is_at_hand(blocks[0].key));
  EXPECT_TRUE(tiers.is_at_hand(blocks[2].key));
  for (const Kept& block : blocks) {
    EXPECT_TRUE(has(*near, block));
    EXPECT_TRUE(tiers.contains_far(block.key));
    EXPECT_TRUE(has(tiers, block));
  }
  const Kept alone(5);
  ASSERT_TRUE(near->write(alone.key, alone.image));
  EXPECT_TRUE(tiers.contains(alone.key));
  EXPECT_TRUE(tiers.touch(alone.key));
  EXPECT_FALSE(tiers.contains_far(alone.key));
  EXPECT_TRUE(has(tiers, alone));
}

TEST(KvStoreSpec, MemoryComesFirst) {
  EXPECT_EQ(parse_kv_store("memory:4G")->memory_bytes, int64_t{4} << 30);
  EXPECT_FALSE(parse_kv_store("memory:4G")->is_shared());
  const auto all = parse_kv_store("memory:2M,/cache:20M,redis://a:1");
  EXPECT_EQ(all->memory_bytes, 2 << 20);
  EXPECT_EQ(all->path, "/cache");
  EXPECT_EQ(all->max_bytes, 20 << 20);
  EXPECT_EQ(all->redis->name(), "a:1");
  EXPECT_TRUE(all->is_shared());
  EXPECT_EQ(parse_kv_store("memory:1G,redis://a")->redis->name(), "a:6379");
  EXPECT_EQ(parse_kv_store("./memory:4G")->path, "./memory");
  for (const char* wrong : {"memory:", "memory:x", "memory:1K", "memory:-4G", "memory:4G,",
                            "memory:4G,memory:", "/cache,memory:x"})
    EXPECT_EQ(parse_kv_store(wrong).error().code, ErrorCode::kInvalidArgument) << wrong;
}

}  // namespace
}  // namespace penstock
