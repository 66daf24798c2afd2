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
  const bool same = n_blocks == 0 ? other.root == sequence.root
                                  : other.hashes[n_blocks - 1] == sequence.hashes[n_blocks - 1];
  bool there = same;
  for (const GroupBlocks& kv : other.kv) there = there && n_blocks >= kv.first_block;
  int common = begin;
  while (there && common < end && other.tokens[common] == sequence.tokens[common]) ++common;
  return common - begin;
}

// After the full blocks: when a running sequence goes on with the same tokens for a part of the next block,
// that part is copied instead of computed.
void Scheduler::copy_common_start(Sequence& sequence, Plan& plan) {
  const int begin = sequence.n_computed, n_blocks = begin / block_size_;
  const Sequence* best = nullptr;
  int longest = shortest_copy() - 1;
  for (const Sequence* other : running_) {
    if (other->n_swapped > 0) continue;  // comes back in this step, after the copies
    if (other->n_computed - begin <= longest) continue;
    const int common = std::min(common_start(*other, sequence, n_blocks), other->n_computed - begin);
    if (common <= longest) continue;
    best = other;
    longest = common;
  }
  if (best == nullptr) return;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const BlockId from = best->kv[g].blocks[n_blocks - best->kv[g].first_block];
    const std::optional<BlockId> to = groups_[g].allocator.allocate();
    PENSTOCK_CHECK(to.has_value());
    sequence.kv[g].blocks.push_back(*to);
    plan.copies.push_back({static_cast<int>(g), from, *to});
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

// Whether a running sequence that does not end with its prompt is about to compute more of the next block's
// beginning than can be copied now.
bool Scheduler::waits_for_start(const Sequence& sequence, int n_blocks) const {
  const int begin = n_blocks * block_size_;
  int now = shortest_copy() - 1, soon = now;
  for (const Sequence* other : running_) {
    const int common = common_start(*other, sequence, n_blocks);
    if (common <= now) continue;
    now = std::max(now, std::min(common, other->n_computed - begin));
    if (other->n_tokens() + 1 < other->max_len) soon = std::max(soon, common);
  }
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
