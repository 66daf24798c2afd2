// What sequences share: blocks found in the prefix index, blocks that another sequence is about to publish,
// and the beginning of a block in which two prompts part.
#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"

namespace penstock {

void Scheduler::hash_full_blocks(Sequence& sequence, int n_blocks) const {
  const std::span<const TokenId> tokens = sequence.tokens;
  for (int i = static_cast<int>(sequence.hashes.size()); i < n_blocks; ++i) {
    const BlockHash& parent = i == 0 ? sequence.root : sequence.hashes[i - 1];
    sequence.hashes.push_back(
        chain_hash(parent, tokens.subspan(static_cast<size_t>(i) * block_size_, block_size_)));
  }
}

// First block that a group with this window still needs when n_tokens are computed.
int Scheduler::first_needed(int window, int n_tokens) const {
  return window > 0 ? std::max(0, n_tokens - window + 1) / block_size_ : 0;
}

bool Scheduler::has_blocks(const Sequence& sequence, int n_blocks) const {
  for (const Group& group : groups_) {
    for (int i = first_needed(group.window, n_blocks * block_size_); i < n_blocks; ++i) {
      if (!group.allocator.contains(sequence.hashes[i])) return false;
    }
  }
  return true;
}

void Scheduler::match_prefix(Sequence& sequence) {
  const int usable = (sequence.n_tokens() - 1) / block_size_;  // at least one token is left to compute
  hash_full_blocks(sequence, usable);
  int found = 0;
  while (found < usable && groups_[0].allocator.contains(sequence.hashes[found])) ++found;
  while (found > 0 && groups_.size() > 1 && !has_blocks(sequence, found)) --found;
  for (size_t g = 0; g < groups_.size(); ++g) {
    GroupBlocks& kv = sequence.kv[g];
    kv.first_block = first_needed(groups_[g].window, found * block_size_);
    for (int i = kv.first_block; i < found; ++i) {
      const std::span<const TokenId> tokens{sequence.tokens.data() + static_cast<ptrdiff_t>(i) * block_size_,
                                            static_cast<size_t>(block_size_)};
      const std::optional<BlockId> block = groups_[g].allocator.acquire(sequence.hashes[i], tokens);
      if (!block) {  // equal hashes of different tokens: practically never
        release_blocks(sequence);
        return;
      }
      kv.blocks.push_back(*block);
    }
  }
  sequence.n_computed = found * block_size_;
  sequence.n_published = found;
}

// Tokens with which both go on in the block after n_blocks equal ones; 0 when those differ. Of `sequence` at
// least one token is left over.
int Scheduler::common_start(const Sequence& other, const Sequence& sequence, int n_blocks) const {
  const int begin = n_blocks * block_size_;
  const int end = std::min({other.n_tokens(), sequence.n_tokens() - 1, begin + block_size_ - 1});
  if (end <= begin || static_cast<int>(other.hashes.size()) < n_blocks) return 0;
  bool there = hash_before(other, n_blocks) == hash_before(sequence, n_blocks);
  for (const GroupBlocks& kv : other.kv) there = there && n_blocks >= kv.first_block;
  int common = begin;
  while (there && common < end && other.tokens[common] == sequence.tokens[common]) ++common;
  return common - begin;
}

int Scheduler::common_start(const Leftover& leftover, const Sequence& sequence, int n_blocks) const {
  if (leftover.tokens.empty() || leftover.n_blocks != n_blocks) return 0;
  if (leftover.before != hash_before(sequence, n_blocks)) return 0;
  const int begin = n_blocks * block_size_;
  const int end = std::min(static_cast<int>(leftover.tokens.size()), sequence.n_tokens() - 1 - begin);
  int common = 0;
  while (common < end && leftover.tokens[common] == sequence.tokens[begin + common]) ++common;
  return common;
}

// Of a sequence that ends: keeps the block in which one of those who wait parts from it.
void Scheduler::leave_block(const Sequence& sequence) {
  constexpr size_t kMostLookedAt = 8;
  if (!config_.prefix_caching || sequence.n_swapped > 0) return;
  for (const auto& queue : waiting_) {
    for (size_t i = 0; i < std::min(queue.size(), kMostLookedAt); ++i) {
      const Sequence& waiting = *queue[i];
      const auto parting = std::ranges::mismatch(sequence.hashes, waiting.hashes).in1;
      const int n_blocks = static_cast<int>(parting - sequence.hashes.begin()),
                begin = n_blocks * block_size_;
      if (!waiting.read_cache || static_cast<int>(waiting.hashes.size()) < n_blocks) continue;
      const int common = std::min(common_start(sequence, waiting, n_blocks), sequence.n_computed - begin);
      const auto is_there = [&](const Leftover& each) {
        return common_start(each, waiting, n_blocks) >= common;
      };
      if (common < shortest_copy() || std::ranges::any_of(leftovers_, is_there)) continue;
      return keep_block(sequence, n_blocks, common);
    }
  }
}

void Scheduler::keep_block(const Sequence& sequence, int n_blocks, int n_tokens) {
  Leftover& leftover = leftovers_[next_leftover_];
  next_leftover_ = (next_leftover_ + 1) % kMaxLeftovers;
  drop_leftover(leftover);
  const auto first = sequence.tokens.begin() + static_cast<ptrdiff_t>(n_blocks) * block_size_;
  leftover.n_blocks = n_blocks;
  leftover.before = hash_before(sequence, n_blocks);
  leftover.tokens.assign(first, first + n_tokens);
  for (size_t g = 0; g < groups_.size(); ++g) {
    leftover.blocks.push_back(sequence.kv[g].blocks[n_blocks - sequence.kv[g].first_block]);
    groups_[g].allocator.retain(leftover.blocks.back());
  }
}

void Scheduler::drop_leftover(Leftover& leftover) {
  for (size_t g = 0; g < leftover.blocks.size(); ++g) groups_[g].allocator.release(leftover.blocks[g]);
  leftover.blocks.clear();
  leftover.tokens.clear();
}

bool Scheduler::drop_leftovers() {
  const bool any = std::ranges::any_of(leftovers_, [](const Leftover& each) { return !each.blocks.empty(); });
  if (any) std::ranges::for_each(leftovers_, [&](Leftover& each) { drop_leftover(each); });
  return any;
}

// After the full blocks: when a running sequence goes on with the same tokens for a part of the next block,
// or one that has ended did, that part is copied instead of computed.
void Scheduler::copy_common_start(Sequence& sequence, Plan& plan) {
  const int begin = sequence.n_computed, n_blocks = begin / block_size_;
  const Sequence* best = nullptr;
  const Leftover* left = nullptr;
  int longest = shortest_copy() - 1;
  for (const Sequence* other : running_) {
    if (other->n_swapped > 0) continue;  // comes back in this step, after the copies
    if (other->n_computed - begin <= longest) continue;
    const int common = std::min(common_start(*other, sequence, n_blocks), other->n_computed - begin);
    if (common <= longest) continue;
    best = other;
    longest = common;
  }
  for (const Leftover& each : leftovers_) {
    const int common = common_start(each, sequence, n_blocks);
    if (common <= longest) continue;
    left = &each;
    longest = common;
  }
  if (best == nullptr && left == nullptr) return;
  for (const Group& group : groups_) {
    if (group.allocator.n_available() == 0) return;  // alone, and as large as the cache
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const BlockId from =
        left != nullptr ? left->blocks[g] : best->kv[g].blocks[n_blocks - best->kv[g].first_block];
    const BlockId to = *groups_[g].allocator.allocate();
    sequence.kv[g].blocks.push_back(to);
    plan.copies.push_back({static_cast<int>(g), from, to});
  }
  sequence.n_computed = begin + longest;
}

bool Scheduler::waits_for_other(Sequence& sequence) const {
  if (!config_.prefix_caching || !sequence.read_cache || running_.empty()) return false;
  const int usable = (sequence.n_tokens() - 1) / block_size_;
  hash_full_blocks(sequence, usable);
  int found = 0;
  while (found < usable && groups_[0].allocator.contains(sequence.hashes[found])) ++found;
  if (found < usable && claims_.contains(sequence.hashes[found])) return true;
  return waits_for_start(sequence, found);
}

// Whether a running sequence is about to compute more of the next block's beginning than can be copied now.
bool Scheduler::waits_for_start(const Sequence& sequence, int n_blocks) const {
  const int begin = n_blocks * block_size_;
  int now = shortest_copy() - 1, soon = now;
  for (const Sequence* other : running_) {
    const int common = common_start(*other, sequence, n_blocks);
    if (common <= now) continue;
    now = std::max(now, std::min(common, other->n_computed - begin));
    soon = std::max(soon, common);
  }
  for (const Leftover& each : leftovers_) now = std::max(now, common_start(each, sequence, n_blocks));
  return soon > now;
}

void Scheduler::claim_blocks(Sequence& sequence) {
  const int full = sequence.n_tokens() / block_size_;
  hash_full_blocks(sequence, full);
  for (int i = sequence.n_published; i < full; ++i) claims_.try_emplace(sequence.hashes[i], sequence.id);
}

void Scheduler::drop_claims(const Sequence& sequence) {
  if (claims_.empty()) return;
  for (size_t i = sequence.n_published; i < sequence.hashes.size(); ++i) drop_claim(sequence, i);
}

void Scheduler::drop_claim(const Sequence& sequence, size_t block) {
  const auto found = claims_.find(sequence.hashes[block]);
  if (found != claims_.end() && found->second == sequence.id) claims_.erase(found);
}

void Scheduler::publish_blocks(Sequence& sequence) {
  const int full = sequence.n_computed / block_size_;
  hash_full_blocks(sequence, full);
  for (; sequence.n_published < full; ++sequence.n_published) {
    const int i = sequence.n_published;
    const std::span<const TokenId> tokens{sequence.tokens.data() + static_cast<ptrdiff_t>(i) * block_size_,
                                          static_cast<size_t>(block_size_)};
    for (size_t g = 0; g < groups_.size(); ++g) {
      const GroupBlocks& kv = sequence.kv[g];
      if (i < kv.first_block) continue;
      const BlockId block = kv.blocks[i - kv.first_block];
      if (!groups_[g].allocator.is_published(block))
        groups_[g].allocator.publish(block, sequence.hashes[i], tokens);
    }
    drop_claim(sequence, i);
  }
}

}  // namespace penstock
