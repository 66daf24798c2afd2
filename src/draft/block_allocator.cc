#include "draft/block_allocator.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/sha256.h"

namespace penstock {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

void absorb(BlockHash& hash, uint64_t word) {
  hash.low = mix(hash.low ^ word, 0x9E3779B97F4A7C15ull ^ hash.high);
  hash.high = mix(hash.high ^ (word + 0xD6E8FEB86659FD93ull), 0xA0761D6478BD642Full ^ hash.low);
}

}  // namespace

BlockHash root_hash(std::string_view salt) {
  const Sha256 digest = sha256(salt);
  BlockHash hash;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

BlockHash chain_hash(const BlockHash& parent, std::span<const TokenId> tokens) {
  BlockHash hash = parent;
  absorb(hash, tokens.size());
  for (const TokenId token : tokens) absorb(hash, static_cast<uint32_t>(token) + 1);
  return hash;
}

BlockAllocator::BlockAllocator(int n_blocks, int block_size)
    : block_size_(block_size),
      blocks_(n_blocks),
      tokens_(static_cast<size_t>(n_blocks) * block_size) {
  size_t slots = 16;
  while (slots < static_cast<size_t>(n_blocks) * 2) slots *= 2;
  index_.assign(slots, kNone);
  for (int i = 0; i < n_blocks; ++i) blocks_[i].next = i + 1 < n_blocks ? i + 1 : kNone;
  free_head_ = n_blocks > 0 ? 0 : kNone;
  n_free_ = n_blocks;
}

std::optional<BlockId> BlockAllocator::allocate() {
  int block = free_head_;
  if (block != kNone) {
    free_head_ = blocks_[block].next;
    --n_free_;
  } else if (lru_head_ != kNone) {
    block = lru_head_;
    if (watcher_ != nullptr) watcher_->leaves(BlockId(block));
    lru_remove(block);
    index_erase(block);
  } else {
    return std::nullopt;
  }
  blocks_[block].references = 1;
  blocks_[block].next = blocks_[block].prev = kNone;
  return BlockId(block);
}

void BlockAllocator::retain(BlockId block) {
  PENSTOCK_CHECK(at(block).references > 0);
  ++at(block).references;
}

void BlockAllocator::release(BlockId block) {
  Block& b = at(block);
  PENSTOCK_CHECK(b.references > 0);
  if (--b.references > 0) return;
  const int i = static_cast<int>(block);
  if (b.published) {
    lru_append(i);
  } else {
    b.next = free_head_;
    free_head_ = i;
    ++n_free_;
  }
}

std::optional<BlockId> BlockAllocator::acquire(const BlockHash& hash,
                                               std::span<const TokenId> tokens) {
  const int block = find(hash);
  if (block == kNone || !std::ranges::equal(tokens_of(block), tokens)) return std::nullopt;
  if (blocks_[block].references++ == 0) lru_remove(block);
  return BlockId(block);
}

bool BlockAllocator::publish(BlockId block, const BlockHash& hash,
                             std::span<const TokenId> tokens) {
  Block& b = at(block);
  PENSTOCK_CHECK(b.references > 0 && !b.published &&
                 static_cast<int>(tokens.size()) == block_size_);
  if (find(hash) != kNone) return false;
  b.published = true;
  b.hash = hash;
  std::ranges::copy(tokens, tokens_.begin() + static_cast<int64_t>(block) * block_size_);
  size_t slot = home(hash);
  while (index_[slot] != kNone) slot = (slot + 1) & (index_.size() - 1);
  index_[slot] = static_cast<int>(block);
  if (watcher_ != nullptr) watcher_->entered(block);
  return true;
}

void BlockAllocator::unpublish(BlockId block) {
  PENSTOCK_CHECK(at(block).references > 0 && at(block).published);
  if (watcher_ != nullptr) watcher_->leaves(block);
  index_erase(static_cast<int>(block));
}

void BlockAllocator::clear_index() {
  while (lru_head_ != kNone) {
    const int block = lru_head_;
    lru_remove(block);
    blocks_[block].next = free_head_;
    free_head_ = block;
    ++n_free_;
  }
  for (Block& block : blocks_) block.published = false;
  index_.assign(index_.size(), kNone);
  if (watcher_ != nullptr) watcher_->cleared();
}

int BlockAllocator::find(const BlockHash& hash) const {
  for (size_t slot = home(hash); index_[slot] != kNone; slot = (slot + 1) & (index_.size() - 1)) {
    if (blocks_[index_[slot]].hash == hash) return index_[slot];
  }
  return kNone;
}

// Removes a block's entry and closes the gap, so that all other entries stay reachable from their
// home slots.
void BlockAllocator::index_erase(int block) {
  const size_t mask = index_.size() - 1;
  size_t hole = home(blocks_[block].hash);
  while (index_[hole] != block) hole = (hole + 1) & mask;
  for (size_t next = (hole + 1) & mask; index_[next] != kNone; next = (next + 1) & mask) {
    const size_t wanted = home(blocks_[index_[next]].hash);
    if (((next - wanted) & mask) >= ((next - hole) & mask)) {
      index_[hole] = index_[next];
      hole = next;
    }
  }
  index_[hole] = kNone;
  blocks_[block].published = false;
}

void BlockAllocator::lru_append(int block) {
  blocks_[block].prev = lru_tail_;
  blocks_[block].next = kNone;
  (lru_tail_ == kNone ? lru_head_ : blocks_[lru_tail_].next) = block;
  lru_tail_ = block;
  ++n_cached_;
}

void BlockAllocator::lru_remove(int block) {
  Block& b = blocks_[block];
  (b.prev == kNone ? lru_head_ : blocks_[b.prev].next) = b.next;
  (b.next == kNone ? lru_tail_ : blocks_[b.next].prev) = b.prev;
  b.prev = b.next = kNone;
  --n_cached_;
}

void BlockAllocator::check_invariants() const {
  int n_free = 0, n_cached = 0, n_published = 0, n_indexed = 0;
  for (int i = free_head_; i != kNone; i = blocks_[i].next, ++n_free) {
    PENSTOCK_CHECK(blocks_[i].references == 0 && !blocks_[i].published && n_free < n_blocks());
  }
  for (int i = lru_head_; i != kNone; i = blocks_[i].next, ++n_cached) {
    PENSTOCK_CHECK(blocks_[i].references == 0 && blocks_[i].published && n_cached < n_blocks());
  }
  PENSTOCK_CHECK(n_free == n_free_ && n_cached == n_cached_);
  int n_referenced = 0;
  for (int i = 0; i < n_blocks(); ++i) {
    n_referenced += blocks_[i].references > 0;
    if (!blocks_[i].published) continue;
    ++n_published;
    PENSTOCK_CHECK(find(blocks_[i].hash) == i);
  }
  for (const int block : index_) n_indexed += block != kNone;
  PENSTOCK_CHECK(n_published == n_indexed && n_referenced + n_free + n_cached == n_blocks());
}

}  // namespace penstock
