#include "engine/schedule/prefix_sharing.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {
namespace {

const BlockHash& hash_before(const Sequence& sequence, int n_blocks) {
  return n_blocks == 0 ? sequence.root : sequence.hashes[n_blocks - 1];
}

}  // namespace

PrefixSharing::PrefixSharing(SequenceBlocks& blocks, bool enabled, int snapshot_interval)
    : blocks_(blocks),
      enabled_(enabled),
      snapshots_(blocks.block_size(), snapshot_interval),
      leftovers_(kMaxLeftovers) {
  for (Leftover& leftover : leftovers_) {
    leftover.blocks.reserve(blocks.n_groups());
    leftover.tokens.reserve(blocks.block_size());
  }
}

std::span<const TokenId> PrefixSharing::tokens_of(const Sequence& sequence, int block) const {
  return std::span(sequence.tokens)
      .subspan(static_cast<size_t>(block) * block_size(), block_size());
}

void PrefixSharing::hash_full_blocks(Sequence& sequence, int n_blocks) const {
  for (int i = static_cast<int>(sequence.hashes.size()); i < n_blocks; ++i) {
    BlockHash hash = chain_hash(hash_before(sequence, i), tokens_of(sequence, i));
    if (sequence.input != nullptr)
      hash = sequence.input->with_rows(hash, i * block_size(), (i + 1) * block_size());
    sequence.hashes.push_back(hash);
  }
}

// Whether the other groups have the blocks that belong to n_blocks of group 0.
bool PrefixSharing::has_blocks(const Sequence& sequence, int n_blocks) const {
  for (int g = blocks_.n_groups() - 1; g > 0; --g) {
    const int first =
        blocks_.holds_states(g) ? n_blocks - 1 : blocks_.first_needed(g, n_blocks * block_size());
    for (int i = first; i < n_blocks; ++i) {
      if (!blocks_.allocator(g).contains(sequence.hashes[i])) return false;
    }
  }
  return true;
}

// Returns the number of leading blocks in the index of group 0; at least one token is left to
// compute.
int PrefixSharing::find(Sequence& sequence) const {
  const int usable = (sequence.n_tokens() - 1) / block_size();
  hash_full_blocks(sequence, usable);
  int found = 0;
  while (found < usable && blocks_.allocator(0).contains(sequence.hashes[found])) ++found;
  return found;
}

// Returns how many of the leading blocks of group 0 allow all groups to continue.
int PrefixSharing::find_whole(const Sequence& sequence, int found) const {
  while (found > 0 && !has_blocks(sequence, found)) --found;
  return found;
}

int PrefixSharing::look_up(Sequence& sequence) const {
  return shares(sequence) ? find_whole(sequence, find(sequence)) : 0;
}

void PrefixSharing::match(Sequence& sequence) {
  if (!shares(sequence)) return;
  const int common = find(sequence), found = find_whole(sequence, common);
  for (int g = 0; g < blocks_.n_groups(); ++g) {
    const int first = blocks_.holds_states(g) ? std::max(0, found - 1)
                                              : blocks_.first_needed(g, found * block_size());
    if (!acquire(sequence, g, first, found))
      return blocks_.release(sequence);  // a hash collision: practically never
  }
  sequence.n_computed = found * block_size();
  sequence.n_published = found;
  if (with_states()) snapshots_.note_parting(sequence, with_claims(sequence, common));
}

// Returns the number of leading blocks that others have computed or have claimed.
int PrefixSharing::with_claims(const Sequence& sequence, int found) const {
  const int usable = (sequence.n_tokens() - 1) / block_size();
  while (found < usable && claims_.contains(sequence.hashes[found])) ++found;
  return found;
}

// Takes references to the published blocks [first, end). Returns false if one is missing.
bool PrefixSharing::acquire(Sequence& sequence, int group, int first, int end) {
  GroupBlocks& kv = sequence.kv[group];
  kv.first_block = blocks_.holds_states(group) ? 0 : first;
  for (int i = first; i < end; ++i) {
    const std::optional<BlockId> block =
        blocks_.allocator(group).acquire(sequence.hashes[i], tokens_of(sequence, i));
    if (!block) return false;
    kv.blocks.push_back(*block);
  }
  return true;
}

// Returns the number of equal tokens in the block after n_blocks common ones; 0 if those differ.
// Tokens with given rows are equal to none. At least one token of `sequence` is left to compute.
int PrefixSharing::common_start(const Sequence& other, const Sequence& sequence,
                                int n_blocks) const {
  const int begin = n_blocks * block_size();
  int end = std::min({other.n_tokens(), sequence.n_tokens() - 1, begin + block_size() - 1});
  end = std::max(begin, sequence.first_given(begin, other.first_given(begin, end)));
  if (end <= begin || static_cast<int>(other.hashes.size()) < n_blocks) return 0;
  bool there = hash_before(other, n_blocks) == hash_before(sequence, n_blocks);
  for (const GroupBlocks& kv : other.kv) there = there && n_blocks >= kv.first_block;
  int common = begin;
  while (there && common < end && other.tokens[common] == sequence.tokens[common]) ++common;
  return common - begin;
}

int PrefixSharing::common_start(const Leftover& leftover, const Sequence& sequence,
                                int n_blocks) const {
  if (leftover.tokens.empty() || leftover.n_blocks != n_blocks) return 0;
  if (leftover.before != hash_before(sequence, n_blocks)) return 0;
  const int begin = n_blocks * block_size();
  const int end =
      std::min(static_cast<int>(leftover.tokens.size()),
               sequence.first_given(begin, std::max(begin, sequence.n_tokens() - 1)) - begin);
  int common = 0;
  while (common < end && leftover.tokens[common] == sequence.tokens[begin + common]) ++common;
  return common;
}

void PrefixSharing::copy_start(Sequence& sequence, std::span<Sequence* const> running, Plan& plan) {
  if (!shares(sequence) || with_states()) return;
  const int begin = sequence.n_computed, n_blocks = begin / block_size();
  const Sequence* best = nullptr;
  const Leftover* left = nullptr;
  int longest = shortest_copy() - 1;
  for (const Sequence* other : running) {
    if (other->n_computed - begin <= longest) continue;
    const int common =
        std::min(common_start(*other, sequence, n_blocks), other->n_computed - begin);
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
  for (int g = 0; g < blocks_.n_groups(); ++g) {
    // a sequence as large as the cache runs alone
    if (blocks_.allocator(g).n_available() == 0) return;
  }
  for (int g = 0; g < blocks_.n_groups(); ++g) {
    const BlockId from =
        left != nullptr ? left->blocks[g] : best->kv[g].blocks[n_blocks - best->kv[g].first_block];
    const BlockId to = *blocks_.allocator(g).allocate();
    sequence.kv[g].blocks.push_back(to);
    plan.copies.push_back({g, from, to});
  }
  sequence.n_computed = begin + longest;
}

bool PrefixSharing::is_coming(Sequence& sequence, std::span<Sequence* const> running) const {
  if (!shares(sequence) || running.empty()) return false;
  const int found = find(sequence), usable = (sequence.n_tokens() - 1) / block_size();
  if (with_states())
    return snapshots_.is_coming(sequence, find_whole(sequence, found) * block_size(), running);
  if (found < usable && claims_.contains(sequence.hashes[found])) return true;
  return start_is_coming(sequence, found, running);
}

// Whether a running sequence is about to compute more of the next block's start than can be copied
// now.
bool PrefixSharing::start_is_coming(const Sequence& sequence, int n_blocks,
                                    std::span<Sequence* const> running) const {
  const int begin = n_blocks * block_size();
  int now = shortest_copy() - 1, soon = now;
  for (const Sequence* other : running) {
    const int common = common_start(*other, sequence, n_blocks);
    if (common <= now) continue;
    now = std::max(now, std::min(common, other->n_computed - begin));
    soon = std::max(soon, common);
  }
  for (const Leftover& each : leftovers_)
    now = std::max(now, common_start(each, sequence, n_blocks));
  return soon > now;
}

void PrefixSharing::claim(Sequence& sequence) {
  if (!enabled_) return;
  const int full = sequence.n_known() / block_size();
  hash_full_blocks(sequence, full);
  for (int i = sequence.n_published; i < full; ++i)
    claims_.try_emplace(sequence.hashes[i], sequence.id);
}

void PrefixSharing::drop_claims(const Sequence& sequence) {
  if (claims_.empty()) return;
  for (size_t i = sequence.n_published; i < sequence.hashes.size(); ++i) drop_claim(sequence, i);
}

void PrefixSharing::drop_claim(const Sequence& sequence, size_t block) {
  const auto found = claims_.find(sequence.hashes[block]);
  if (found != claims_.end() && found->second == sequence.id) claims_.erase(found);
}

void PrefixSharing::publish(Sequence& sequence) {
  if (!enabled_) return;
  const int full = sequence.n_computed / block_size();
  hash_full_blocks(sequence, full);
  for (; sequence.n_published < full; ++sequence.n_published) {
    const int i = sequence.n_published;
    for (int g = 0; g < blocks_.n_groups(); ++g) {
      const GroupBlocks& kv = sequence.kv[g];
      if (i < kv.first_block || blocks_.holds_states(g)) continue;
      const BlockId block = kv.blocks[i - kv.first_block];
      if (!blocks_.allocator(g).is_published(block))
        blocks_.allocator(g).publish(block, sequence.hashes[i], tokens_of(sequence, i));
    }
    drop_claim(sequence, i);
  }
  if (with_states() && snapshots_.is_due(sequence)) publish_state(sequence);
}

void PrefixSharing::publish_state(Sequence& sequence) {
  BlockAllocator& allocator = blocks_.allocator(blocks_.state_group());
  const BlockId block = sequence.kv.back().blocks[0];
  const int last = sequence.n_computed / block_size() - 1;
  if (!allocator.is_published(block))
    allocator.publish(block, sequence.hashes[last], tokens_of(sequence, last));
  sequence.n_snapshot = sequence.n_computed;
}

int PrefixSharing::cut(const Sequence& sequence, int count) const {
  return enabled_ && with_states() ? snapshots_.cut(sequence, count) : count;
}

void PrefixSharing::leave_block(const Sequence& sequence, const WaitingQueue& waiting) {
  constexpr size_t kMostLookedAt = 8;
  if (!enabled_ || with_states()) return;
  for (const auto& queue : waiting.queues()) {
    for (size_t i = 0; i < std::min(queue.size(), kMostLookedAt); ++i) {
      if (leave_block_for(sequence, *queue[i])) return;
    }
  }
}

bool PrefixSharing::leave_block_for(const Sequence& sequence, const Sequence& waiting) {
  const auto parting = std::ranges::mismatch(sequence.hashes, waiting.hashes).in1;
  const int n_blocks = static_cast<int>(parting - sequence.hashes.begin()),
            begin = n_blocks * block_size();
  if (!waiting.read_cache || static_cast<int>(waiting.hashes.size()) < n_blocks) return false;
  const int common =
      std::min(common_start(sequence, waiting, n_blocks), sequence.n_computed - begin);
  const auto is_there = [&](const Leftover& each) {
    return common_start(each, waiting, n_blocks) >= common;
  };
  if (common < shortest_copy() || std::ranges::any_of(leftovers_, is_there)) return false;
  keep_block(sequence, n_blocks, common);
  return true;
}

void PrefixSharing::keep_block(const Sequence& sequence, int n_blocks, int n_tokens) {
  Leftover& leftover = leftovers_[next_leftover_];
  next_leftover_ = (next_leftover_ + 1) % kMaxLeftovers;
  drop_leftover(leftover);
  const auto first = sequence.tokens.begin() + static_cast<ptrdiff_t>(n_blocks) * block_size();
  leftover.n_blocks = n_blocks;
  leftover.before = hash_before(sequence, n_blocks);
  leftover.tokens.assign(first, first + n_tokens);
  for (int g = 0; g < blocks_.n_groups(); ++g) {
    leftover.blocks.push_back(sequence.kv[g].blocks[n_blocks - sequence.kv[g].first_block]);
    blocks_.allocator(g).retain(leftover.blocks.back());
  }
}

void PrefixSharing::drop_leftover(Leftover& leftover) {
  for (size_t g = 0; g < leftover.blocks.size(); ++g)
    blocks_.allocator(static_cast<int>(g)).release(leftover.blocks[g]);
  leftover.blocks.clear();
  leftover.tokens.clear();
}

bool PrefixSharing::drop_leftovers() {
  const bool any =
      std::ranges::any_of(leftovers_, [](const Leftover& each) { return !each.blocks.empty(); });
  if (any) std::ranges::for_each(leftovers_, [&](Leftover& each) { drop_leftover(each); });
  return any;
}

void PrefixSharing::reset() {
  drop_leftovers();
  for (int g = 0; g < blocks_.n_groups(); ++g) blocks_.allocator(g).clear_index();
}

void PrefixSharing::count(std::vector<std::vector<int>>& references) const {
  for (const Leftover& leftover : leftovers_) {
    for (size_t g = 0; g < leftover.blocks.size(); ++g)
      ++references[g][static_cast<uint32_t>(leftover.blocks[g])];
  }
}

void PrefixSharing::check_invariants(bool any_running, bool any_waiting) const {
  for (const Leftover& leftover : leftovers_) {
    PENSTOCK_CHECK(leftover.blocks.empty() == leftover.tokens.empty());
    PENSTOCK_CHECK(leftover.blocks.empty() || any_waiting);
  }
  PENSTOCK_CHECK(any_running || claims_.empty());
}

}  // namespace penstock
