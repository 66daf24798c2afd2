// Cached blocks in the host's memory: where blocks go that the cache evicts or preempted sequences
// leave, beside a GPU or in front of a disk.
//
// One reserved mapping holds slots of each group's size; the block that was used least recently
// gives its slot. The system is asked for memory as slots are first written.
//
// Any thread.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "engine/store/block_store.h"

namespace penstock {

class BlockMemory final : public BlockStore {
 public:
  // Divides `bytes` among the groups in the proportion of what shares[group] blocks of each take.
  // Errors: kInvalidArgument (no room for a block of each group), kResourceExhausted.
  static Result<std::shared_ptr<BlockMemory>> open(int64_t bytes, BlockImages images,
                                                   std::span<const int> shares);
  ~BlockMemory() override;
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;

  const BlockImages& images() const override { return images_; }
  int n_slots(int group) const { return groups_[static_cast<size_t>(group)].n_slots; }

  bool contains(const BlockKey& key) const override;
  bool touch(const BlockKey& key) const override;
  bool is_at_hand(const BlockKey& key) const override { return contains(key); }
  Status read(const BlockKey& key, std::span<const TokenId> tokens,
              BlockImage& image) const override;
  // Takes the place of another block when there is no room.
  Status write(const BlockKey& key, const BlockImage& image) override;

 private:
  struct HashOf {
    size_t operator()(const BlockHash& hash) const { return hash.low; }
  };
  struct Block {
    BlockHash hash;
    int slot;
  };
  using Blocks = std::list<Block>;
  struct Group {
    int64_t begin = 0;  // of its first slot in the mapping
    int n_slots = 0;
    Blocks blocks;  // the one that was used last is the last
    std::unordered_map<BlockHash, Blocks::iterator, HashOf> by_hash;
  };

  BlockMemory(BlockImages images, std::vector<Group> groups, std::byte* memory, int64_t bytes);
  // null: it is not there. Makes it the one that was used last.
  const Block* use(const BlockKey& key) const;
  void forget(const BlockKey& key) const;
  std::span<std::byte> slot(int group, int slot) const;

  const BlockImages images_;
  mutable std::mutex mutex_;
  mutable std::vector<Group> groups_;  // [n_groups]
  std::byte* const memory_;
  const int64_t bytes_;  // of the mapping
  PromisedMemory promised_;
};

}  // namespace penstock
