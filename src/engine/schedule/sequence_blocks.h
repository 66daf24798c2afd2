// The blocks of sequences in every group of the cache: how many they need; reserving, sharing and
// releasing them.
//
// Engine thread only, except could_hold(): any thread.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "draft/block_allocator.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/sequence.h"
#include "ops/cache_spec.h"

namespace penstock {

class SequenceBlocks {
 public:
  // windows[g]: tokens that group g must keep, 0 = all (group 0), kStateWindow = a state and no
  // tokens (the last group). Has one allocator per group.
  SequenceBlocks(std::span<const int> n_blocks, std::span<const int> windows, int block_size);

  int n_groups() const { return static_cast<int>(groups_.size()); }
  int block_size() const { return block_size_; }
  BlockAllocator& allocator(int group) { return groups_[group].allocator; }
  const BlockAllocator& allocator(int group) const { return groups_[group].allocator; }

  // As given to the constructor.
  int window(int group) const { return groups_[group].window; }
  // Whether the group holds states. A published state is never written: a sequence that continues
  // from it copies it.
  bool holds_states(int group) const { return groups_[group].window == kStateWindow; }
  // Index of the group that holds states, -1 = none.
  int state_group() const { return holds_states(n_groups() - 1) ? n_groups() - 1 : -1; }

  // Number of blocks of the group for n_tokens, with those that a sliding window has released.
  int blocks_for(int group, int n_tokens) const {
    if (holds_states(group)) return n_tokens > 0 ? 1 : 0;
    return (n_tokens + block_size_ - 1) / block_size_;
  }
  // Index of the first block that the group still needs when n_tokens are computed.
  int first_needed(int group, int n_tokens) const;
  // Returns the most tokens, at most `wanted`, that a sequence with n_computed tokens holds in the
  // group at any time.
  int kept(int group, int n_computed, int wanted) const;
  // Whether n sequences of n_tokens fit into the empty cache together. Any thread.
  bool could_hold(int n_tokens, int n) const;

  // Reserves memory for the sequence's block tables, enough for n_tokens.
  void make_room(Sequence& sequence, int n_tokens) const;
  // Number of further tokens that fit into the sequence's own blocks.
  int tokens_in_own(const Sequence& sequence) const;
  // Number of further tokens that fit into its own blocks and the available ones.
  int tokens_available(const Sequence& sequence) const;
  // Number of blocks that the sequence lacks for its first n_tokens.
  int missing(const Sequence& sequence, int group, int n_tokens) const;
  // Whether the sequence's state is shared, so that it must be copied to another block before it is
  // written.
  bool must_copy_state(const Sequence& sequence, int group) const;

  // Reserves blocks for the sequence's first n_tokens, and plans copies so that the block it writes
  // next is not shared. False: there are too few blocks, and nothing changed.
  bool reserve(Sequence& sequence, int n_tokens, Plan& plan);
  // Blocks of states for drafts. The state after draft token i goes to block 1 + i of the state
  // group, behind the sequence's own.
  int draft_states_available(int n_reserved) const;
  void reserve_draft_states(Sequence& sequence, int n);
  // Makes the state after n_accepted draft tokens the sequence's own and releases the others.
  void accept_draft_state(Sequence& sequence, int n_accepted);
  // Reserves blocks for the sequence's first n_tokens in every group, as many as are available.
  void reserve_run(Sequence& sequence, int n_tokens);
  // Releases all blocks of the sequence.
  void release(Sequence& sequence);
  // Releases the blocks that slid out of the windows.
  void slide_windows(Sequence& sequence);
  // Releases the blocks that are not needed for the sequence's tokens.
  void trim(Sequence& sequence);
  // Adds references from `to` to the blocks of what `from` has computed. Allocates nothing when
  // `to` has the capacity.
  void share(const Sequence& from, std::vector<GroupBlocks>& to);

  // Adds the references of the sequence's blocks to references[group][block].
  void count(const Sequence& sequence, std::vector<std::vector<int>>& references) const;
  // CHECKs the allocators against the counted references. REQUIRES: `references` has all
  // references.
  void check_invariants(const std::vector<std::vector<int>>& references) const;

 private:
  struct Group {
    BlockAllocator allocator;
    int window;
  };
  BlockId& block_to_write(Sequence& sequence, int group) const;
  bool writes_shared_block(const Sequence& sequence, int group) const;
  bool must_unpublish(const Sequence& sequence, int group) const;

  std::vector<Group> groups_;
  int block_size_;
};

}  // namespace penstock
