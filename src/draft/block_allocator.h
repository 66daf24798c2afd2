// Allocator of the blocks of a KV cache, with reference counts and the prefix index. Bookkeeping
// only: it never touches the cache's memory.
//
// One allocator per cache group. A block is free (no content worth keeping), cached (published and
// without references: evicted, least recently used first, when blocks run out) or referenced (one
// or more users). Engine thread only. Allocates memory only in its constructor.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/types.h"

namespace penstock {

// Identifies a full block by its tokens and all tokens before it: hash of (parent's hash, tokens).
// 128 bits; the tokens of a block are compared too, so two different prefixes never share a block
// by accident.
struct BlockHash {
  uint64_t low = 0, high = 0;
  bool operator==(const BlockHash&) const = default;
};

// Returns the parent hash of a sequence's first block. Sequences share blocks only when their salts
// are equal, also where a client chooses one: the hash is cryptographic.
BlockHash root_hash(std::string_view salt);
// Returns the hash of a block with these tokens after `parent`.
BlockHash chain_hash(const BlockHash& parent, std::span<const TokenId> tokens);

// Is told which blocks enter and leave a prefix index. Called by the allocator, of which it may only
// read; must not throw.
class PublishedBlocks {
 public:
  virtual void entered(BlockId block) = 0;
  // The block still has its content and its entry; another content is about to be written to it.
  virtual void leaves(BlockId block) = 0;
  // All blocks have left the index, whatever they hold.
  virtual void cleared() = 0;

 protected:
  ~PublishedBlocks() = default;
};

class BlockAllocator {
 public:
  BlockAllocator(int n_blocks, int block_size);
  // Tells `watcher` of the index from now on; null: nobody.
  void watch(PublishedBlocks* watcher) { watcher_ = watcher; }

  int n_blocks() const { return static_cast<int>(blocks_.size()); }
  int block_size() const { return block_size_; }
  int n_available() const { return n_free_ + n_cached_; }  // blocks that allocate() can return
  int n_cached() const { return n_cached_; }
  int n_referenced() const { return n_blocks() - n_available(); }

  // Returns a block with one reference; evicts the least recently used cached block when none is
  // free. Nothing when all blocks are referenced.
  std::optional<BlockId> allocate();
  // Adds a reference. REQUIRES: the block is referenced.
  void retain(BlockId block);
  // Removes a reference; without further ones the block is cached if it is published, else free.
  // REQUIRES: the block is referenced.
  void release(BlockId block);
  int references(BlockId block) const { return at(block).references; }

  // Returns the published block with this content and adds a reference for the caller. Nothing when
  // there is none.
  std::optional<BlockId> acquire(const BlockHash& hash, std::span<const TokenId> tokens);
  bool contains(const BlockHash& hash) const { return find(hash) != kNone; }
  // Adds a full block to the prefix index. False when the same content is published already (the
  // block stays as it is). REQUIRES: the block is referenced and not published; tokens.size() ==
  // block_size.
  bool publish(BlockId block, const BlockHash& hash, std::span<const TokenId> tokens);
  // Removes a block from the prefix index. REQUIRES: the block is referenced and published.
  void unpublish(BlockId block);
  bool is_published(BlockId block) const { return at(block).published; }
  // The hash and tokens of a published block.
  const BlockHash& hash_of(BlockId block) const { return at(block).hash; }
  std::span<const TokenId> tokens_of(BlockId block) const {
    return tokens_of(static_cast<int>(block));
  }
  // Empties the prefix index; cached blocks become free.
  void clear_index();

  // CHECKs that lists, counts and index agree. For tests; linear.
  void check_invariants() const;

 private:
  static constexpr int kNone = -1;
  struct Block {
    BlockHash hash;
    int references = 0;
    // in the LRU list (cached) or the free list (next only)
    int prev = kNone, next = kNone;
    bool published = false;
  };
  Block& at(BlockId block) { return blocks_[static_cast<uint32_t>(block)]; }
  const Block& at(BlockId block) const { return blocks_[static_cast<uint32_t>(block)]; }
  std::span<const TokenId> tokens_of(int block) const {
    return {tokens_.data() + static_cast<int64_t>(block) * block_size_,
            static_cast<size_t>(block_size_)};
  }
  int find(const BlockHash& hash) const;  // block, or kNone
  size_t home(const BlockHash& hash) const { return hash.low & (index_.size() - 1); }
  void index_erase(int block);
  void lru_append(int block);
  void lru_remove(int block);

  int block_size_;
  std::vector<Block> blocks_;
  // [n_blocks * block_size] tokens of published blocks
  std::vector<TokenId> tokens_;
  std::vector<int> index_;  // open addressing by hash: block or kNone
  int free_head_ = kNone, lru_head_ = kNone, lru_tail_ = kNone;
  int n_free_ = 0, n_cached_ = 0;
  PublishedBlocks* watcher_ = nullptr;
};

}  // namespace penstock
