#include "draft/block_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <map>
#include <random>

namespace penstock {
namespace {

std::vector<TokenId> block_tokens(int first, int n = 4) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(first + i);
  return tokens;
}

TEST(BlockAllocator, HandsOutEveryBlockOnce) {
  BlockAllocator allocator(5, 4);
  std::vector<BlockId> blocks;
  while (const auto block = allocator.allocate()) blocks.push_back(*block);
  std::sort(blocks.begin(), blocks.end());
  EXPECT_EQ(blocks.size(), 5u);
  EXPECT_EQ(std::unique(blocks.begin(), blocks.end()), blocks.end());
  for (const BlockId block : blocks) allocator.release(block);
  EXPECT_EQ(allocator.n_available(), 5);
  allocator.check_invariants();
}

TEST(BlockAllocator, EvictsTheLeastRecentlyUsed) {
  BlockAllocator allocator(3, 4);
  BlockHash hashes[3];
  BlockId blocks[3];
  for (int i = 0; i < 3; ++i) {
    blocks[i] = *allocator.allocate();
    hashes[i] = chain_hash(root_hash(""), block_tokens(i * 10));
    EXPECT_TRUE(allocator.publish(blocks[i], hashes[i], block_tokens(i * 10)));
  }
  for (const int i : {1, 0, 2}) allocator.release(blocks[i]);
  allocator.release(*allocator.acquire(hashes[1], block_tokens(10)));  // now the most recent
  EXPECT_EQ(*allocator.allocate(), blocks[0]);
  EXPECT_FALSE(allocator.acquire(hashes[0], block_tokens(0)));
  EXPECT_EQ(*allocator.allocate(), blocks[2]);
  EXPECT_TRUE(allocator.contains(hashes[1]));
  allocator.check_invariants();
}

TEST(BlockAllocator, NeedsEqualTokensAndNotOnlyEqualHashes) {
  BlockAllocator allocator(2, 4);
  const BlockId block = *allocator.allocate();
  const BlockHash hash = root_hash("x");
  EXPECT_TRUE(allocator.publish(block, hash, block_tokens(0)));
  EXPECT_FALSE(allocator.acquire(hash, block_tokens(1)));
  EXPECT_EQ(*allocator.acquire(hash, block_tokens(0)), block);
  EXPECT_EQ(allocator.references(block), 2);
}

// Clients choose salts: what separates them must not be forged.
TEST(BlockHash, OfASaltIsTheBeginningOfItsSha256) {
  const BlockHash hash = root_hash("abc");
  std::array<uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), &hash, sizeof hash);
  EXPECT_THAT(bytes, testing::ElementsAre(0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41,
                                          0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23));
}

TEST(BlockHash, DependsOnSaltParentAndTokens) {
  const BlockHash a = chain_hash(root_hash(""), block_tokens(1));
  EXPECT_EQ(a, chain_hash(root_hash(""), block_tokens(1)));
  EXPECT_NE(a, chain_hash(root_hash("tenant"), block_tokens(1)));
  EXPECT_NE(a, chain_hash(root_hash(""), block_tokens(2)));
  EXPECT_NE(a, chain_hash(a, block_tokens(1)));
}

// A model with plain containers next to the allocator, under random operations.
TEST(BlockAllocator, AgreesWithAModelUnderRandomOperations) {
  std::mt19937 rng(1);
  for (const int n_blocks : {1, 2, 7, 40}) {
    BlockAllocator allocator(n_blocks, 4);
    std::map<BlockId, int> references;
    std::map<int, BlockId> published;  // content number -> block
    std::list<int> lru;                // cached contents, oldest first
    const auto hash_of = [](int content) {
      return chain_hash(root_hash(""), block_tokens(content * 7));
    };
    const auto content_of = [&](BlockId block) {
      for (const auto& [content, b] : published) {
        if (b == block) return content;
      }
      return -1;
    };
    const auto pick = [&] {
      return std::next(references.begin(), rng() % references.size())->first;
    };
    for (int step = 0; step < 20000; ++step) {
      switch (rng() % 5) {
        case 0: {
          const auto block = allocator.allocate();
          const bool possible = static_cast<int>(references.size()) < n_blocks;
          ASSERT_EQ(block.has_value(), possible);
          if (!block) break;
          ASSERT_FALSE(references.contains(*block));
          if (const int content = content_of(*block); content >= 0) {
            ASSERT_EQ(static_cast<int>(references.size() + lru.size()), n_blocks)
                << "evicted with free blocks left";
            ASSERT_EQ(content, lru.front());
            lru.pop_front();
            published.erase(content);
          }
          references[*block] = 1;
          break;
        }
        case 1:
        case 2:
          if (!references.empty()) {
            const BlockId block = pick();
            allocator.release(block);
            if (--references[block] == 0) {
              references.erase(block);
              if (content_of(block) >= 0) lru.push_back(content_of(block));
            }
          }
          break;
        case 3:
          if (!references.empty()) {
            const BlockId block = pick();
            const int content = static_cast<int>(rng() % (2 * n_blocks));
            if (content_of(block) >= 0) {
              allocator.retain(block);
              ++references[block];
            } else {
              const bool fresh = !published.contains(content);
              ASSERT_EQ(allocator.publish(block, hash_of(content), block_tokens(content * 7)),
                        fresh);
              if (fresh) published[content] = block;
            }
          }
          break;
        case 4: {
          const int content = static_cast<int>(rng() % (2 * n_blocks));
          const auto block = allocator.acquire(hash_of(content), block_tokens(content * 7));
          ASSERT_EQ(block.has_value(), published.contains(content));
          if (!block) break;
          ASSERT_EQ(*block, published[content]);
          if (++references[*block] == 1) lru.remove(content);
          break;
        }
      }
      ASSERT_EQ(allocator.n_referenced(), static_cast<int>(references.size()));
      ASSERT_EQ(allocator.n_cached(), static_cast<int>(lru.size()));
      if (step % 100 == 0) allocator.check_invariants();
    }
    allocator.clear_index();
    allocator.check_invariants();
    EXPECT_EQ(allocator.n_cached(), 0);
  }
}

}  // namespace
}  // namespace penstock
