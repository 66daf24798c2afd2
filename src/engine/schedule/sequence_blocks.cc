#include "engine/schedule/sequence_blocks.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace penstock {
namespace {

// Returns the index after the last block of the table.
int end_of(const GroupBlocks& kv) { return kv.first_block + static_cast<int>(kv.blocks.size()); }

}  // namespace

SequenceBlocks::SequenceBlocks(std::span<const int> n_blocks, std::span<const int> windows,
                               int block_size)
    : block_size_(block_size) {
  PENSTOCK_CHECK(n_blocks.size() == windows.size() && !windows.empty());
  for (size_t g = 0; g < windows.size(); ++g)
    groups_.push_back({BlockAllocator(n_blocks[g], block_size), windows[g]});
}

int SequenceBlocks::first_needed(int group, int n_tokens) const {
  const int window = groups_[group].window;
  return window > 0 ? std::max(0, n_tokens - window + 1) / block_size_ : 0;
}

int SequenceBlocks::kept(int group, int n_computed, int wanted) const {
  const int window = groups_[group].window;
  return window > 0 ? std::min(wanted, n_computed + window + 2 * block_size_) : wanted;
}

bool SequenceBlocks::could_hold(int n_tokens, int n) const {
  for (int g = 0; g < n_groups(); ++g) {
    if (int64_t{n} * blocks_for(g, kept(g, 0, n_tokens)) > allocator(g).n_blocks()) return false;
  }
  return true;
}

void SequenceBlocks::make_room(Sequence& sequence, int n_tokens) const {
  sequence.kv.resize(groups_.size());
  sequence.hashes.reserve(sequence.max_len / block_size_ + 1);
  for (int g = 0; g < n_groups(); ++g)
    sequence.kv[g].blocks.reserve(holds_states(g) ? 1 + kMaxDraftNodes
                                                  : blocks_for(g, n_tokens) + 1);
}

int SequenceBlocks::tokens_in_own(const Sequence& sequence) const {
  int64_t most = std::numeric_limits<int>::max();
  for (int g = 0; g < n_groups(); ++g) {
    if (holds_states(g)) continue;  // a running sequence has its state
    most = std::min(most, int64_t{end_of(sequence.kv[g])} * block_size_ - sequence.n_computed);
  }
  return static_cast<int>(most);
}

int SequenceBlocks::tokens_available(const Sequence& sequence) const {
  int64_t most = std::numeric_limits<int>::max();
  for (int g = 0; g < n_groups(); ++g) {
    if (holds_states(g)) continue;
    const int64_t blocks = int64_t{end_of(sequence.kv[g])} + allocator(g).n_available();
    most = std::min(most, blocks * block_size_ - sequence.n_computed);
  }
  return static_cast<int>(most);
}

int SequenceBlocks::missing(const Sequence& sequence, int group, int n_tokens) const {
  return std::max(0, blocks_for(group, n_tokens) - end_of(sequence.kv[group]));
}

// Whether the next token is written to a block that others use or may find in the prefix index.
bool SequenceBlocks::writes_shared_block(const Sequence& sequence, int group) const {
  const GroupBlocks& kv = sequence.kv[group];
  if (holds_states(group) && kv.blocks.empty()) return false;
  if (holds_states(group))
    return allocator(group).references(kv.blocks[0]) > 1 ||
           allocator(group).is_published(kv.blocks[0]);
  if (sequence.n_computed % block_size_ == 0) return false;
  const BlockId block = kv.blocks[sequence.n_computed / block_size_ - kv.first_block];
  return allocator(group).references(block) > 1;
}

bool SequenceBlocks::must_copy_state(const Sequence& sequence, int group) const {
  return holds_states(group) && writes_shared_block(sequence, group) &&
         !must_unpublish(sequence, group);
}

// Whether the sequence's own state must stop being a snapshot, since there is no block for a
// copy.
bool SequenceBlocks::must_unpublish(const Sequence& sequence, int group) const {
  if (!holds_states(group) || !writes_shared_block(sequence, group)) return false;
  return allocator(group).references(sequence.kv[group].blocks[0]) == 1 &&
         allocator(group).n_available() == 0;
}

// Returns the block to which the next token is written. REQUIRES: it is allocated.
BlockId& SequenceBlocks::block_to_write(Sequence& sequence, int group) const {
  GroupBlocks& kv = sequence.kv[group];
  return kv.blocks[holds_states(group) ? 0 : sequence.n_computed / block_size_ - kv.first_block];
}

bool SequenceBlocks::reserve(Sequence& sequence, int n_tokens, Plan& plan) {
  for (int g = 0; g < n_groups(); ++g) {
    const int needed = missing(sequence, g, n_tokens) + writes_shared_block(sequence, g);
    if (must_unpublish(sequence, g)) continue;
    if (needed > allocator(g).n_available()) return false;
  }
  for (int g = 0; g < n_groups(); ++g) {
    GroupBlocks& kv = sequence.kv[g];
    if (must_unpublish(sequence, g)) {
      allocator(g).unpublish(kv.blocks[0]);
    } else if (writes_shared_block(sequence, g)) {
      BlockId& block = block_to_write(sequence, g);
      plan.copies.push_back({g, block, block});
      block = plan.copies.back().to = *allocator(g).allocate();
      allocator(g).release(plan.copies.back().from);
    }
    for (int n = missing(sequence, g, n_tokens); n > 0; --n)
      kv.blocks.push_back(*allocator(g).allocate());
  }
  return true;
}

// n_reserved: blocks that others will need.
int SequenceBlocks::draft_states_available(int n_reserved) const {
  if (state_group() < 0) return std::numeric_limits<int>::max();
  return std::max(0, allocator(state_group()).n_available() - n_reserved);
}

void SequenceBlocks::reserve_draft_states(Sequence& sequence, int n) {
  if (state_group() < 0) return;
  PENSTOCK_CHECK(sequence.kv.back().blocks.size() == 1);
  for (; n > 0; --n) sequence.kv.back().blocks.push_back(*allocator(state_group()).allocate());
}

void SequenceBlocks::accept_draft_state(Sequence& sequence, int n_accepted) {
  if (state_group() < 0) return;
  std::vector<BlockId>& blocks = sequence.kv.back().blocks;
  std::swap(blocks.front(), blocks[static_cast<size_t>(n_accepted)]);
  for (; blocks.size() > 1; blocks.pop_back()) allocator(state_group()).release(blocks.back());
}

void SequenceBlocks::reserve_run(Sequence& sequence, int n_tokens) {
  for (int g = 0; g < n_groups(); ++g) {
    for (int n = missing(sequence, g, kept(g, sequence.n_computed, n_tokens)); n > 0; --n) {
      const std::optional<BlockId> block = allocator(g).allocate();
      if (!block) break;  // with a window, its older blocks are released as it slides
      sequence.kv[g].blocks.push_back(*block);
    }
  }
}

void SequenceBlocks::release(Sequence& sequence) {
  for (size_t g = 0; g < sequence.kv.size(); ++g) {
    GroupBlocks& kv = sequence.kv[g];
    // From last to first: eviction starts at the end of a prefix.
    while (!kv.blocks.empty()) {
      groups_[g].allocator.release(kv.blocks.back());
      kv.blocks.pop_back();
    }
    kv.first_block = 0;
  }
  sequence.n_published = 0;
}

void SequenceBlocks::slide_windows(Sequence& sequence) {
  for (int g = 0; g < n_groups(); ++g) {
    if (groups_[g].window <= 0) continue;
    GroupBlocks& kv = sequence.kv[g];
    const int first = first_needed(g, sequence.n_computed);
    const int n_gone = std::min(first - kv.first_block, static_cast<int>(kv.blocks.size()));
    if (n_gone <= 0) continue;
    for (int i = 0; i < n_gone; ++i) allocator(g).release(kv.blocks[i]);
    kv.blocks.erase(kv.blocks.begin(), kv.blocks.begin() + n_gone);
    kv.first_block += n_gone;
  }
}

void SequenceBlocks::trim(Sequence& sequence) {
  for (int g = 0; g < n_groups(); ++g) {
    GroupBlocks& kv = sequence.kv[g];
    while (end_of(kv) > blocks_for(g, sequence.n_tokens())) {
      allocator(g).release(kv.blocks.back());
      kv.blocks.pop_back();
    }
  }
}

void SequenceBlocks::share(const Sequence& from, std::vector<GroupBlocks>& to) {
  for (int g = 0; g < n_groups(); ++g) {
    const GroupBlocks& kv = from.kv[g];
    const int used = blocks_for(g, from.n_computed) - kv.first_block;
    to[g].first_block = kv.first_block;
    to[g].blocks.assign(kv.blocks.begin(), kv.blocks.begin() + used);
    for (const BlockId block : to[g].blocks) allocator(g).retain(block);
  }
}

void SequenceBlocks::count(const Sequence& sequence,
                           std::vector<std::vector<int>>& references) const {
  for (int g = 0; g < n_groups(); ++g) {
    PENSTOCK_CHECK(end_of(sequence.kv[g]) >= blocks_for(g, sequence.n_computed));
    for (const BlockId block : sequence.kv[g].blocks) ++references[g][static_cast<uint32_t>(block)];
  }
}

void SequenceBlocks::check_invariants(const std::vector<std::vector<int>>& references) const {
  for (int g = 0; g < n_groups(); ++g) {
    allocator(g).check_invariants();
    for (int i = 0; i < allocator(g).n_blocks(); ++i)
      PENSTOCK_CHECK(allocator(g).references(BlockId(i)) == references[g][i]);
  }
}

}  // namespace penstock
