// The blocks that sequences have in every group of the cache: how many they need, and taking, sharing and giving them back.
//
// Engine thread only; could_hold() from any.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "cache/block_allocator.h"
#include "cache/cache_spec.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/sequence.h"

namespace penstock {

class SequenceBlocks {
 public:
  // windows[g]: tokens that group g must keep, 0 = all (group 0), kStateWindow = none but a state (the last group). One
  // allocator per group, owned here.
  SequenceBlocks(std::span<const int> n_blocks, std::span<const int> windows, int block_size);

  int n_groups() const { return static_cast<int>(groups_.size()); }
  int block_size() const { return block_size_; }
  BlockAllocator& allocator(int group) { return groups_[group].allocator; }
  const BlockAllocator& allocator(int group) const { return groups_[group].allocator; }

  // A state that is published is not written any more: whoever goes on from it takes a copy.
  bool holds_states(int group) const { return groups_[group].window == kStateWindow; }
  // The group of states, -1 = none.
  int state_group() const { return holds_states(n_groups() - 1) ? n_groups() - 1 : -1; }

  // Blocks of the group that n_tokens take, whatever a window has given up.
  int blocks_for(int group, int n_tokens) const {
    if (holds_states(group)) return n_tokens > 0 ? 1 : 0;
    return (n_tokens + block_size_ - 1) / block_size_;
  }
  // First block that the group still needs when n_tokens are computed.
  int first_needed(int group, int n_tokens) const;
  // Most tokens of `wanted` that a sequence with n_computed ever holds at a time in the group.
  int kept(int group, int n_computed, int wanted) const;
  // Whether n sequences of n_tokens fit together, with nothing else there.
  bool could_hold(int n_tokens, int n) const;

  // All memory that a sequence's tables will ever need, for so many tokens.
  void make_room(Sequence& sequence, int n_tokens) const;
  // How many more tokens its own blocks hold; with those that are at hand.
  int tokens_in_own(const Sequence& sequence) const;
  int tokens_available(const Sequence& sequence) const;
  // Blocks that it lacks for its first n_tokens.
  int missing(const Sequence& sequence, int group, int n_tokens) const;
  // Whether its state, which others use too, takes another block before it goes on.
  bool must_copy_state(const Sequence& sequence, int group) const;

  // Blocks for its first n_tokens, the one that it writes next its own alone. False: not enough, nothing changed.
  bool reserve(Sequence& sequence, int n_tokens, Plan& plan);
  // States for so many guesses, behind its own: that after guess i goes to block 1 + i of its group.
  int draft_states_available(int n_reserved) const;
  void reserve_draft_states(Sequence& sequence, int n);
  // It goes on from the state after n_accepted of them; the others are given back.
  void accept_draft_state(Sequence& sequence, int n_accepted);
  // Blocks for its first n_tokens in every group, as far as there are any.
  void reserve_run(Sequence& sequence, int n_tokens);
  // All of them.
  void release(Sequence& sequence);
  // Those behind the windows of what is computed.
  void slide_windows(Sequence& sequence);
  // Those that its tokens do not need.
  void trim(Sequence& sequence);
  // `to` refers to the blocks of what `from` has computed, too. Allocates nothing where `to` has room.
  void share(const Sequence& from, std::vector<GroupBlocks>& to);

  // [n_groups][n_blocks] references of the sequence's blocks are added.
  void count(const Sequence& sequence, std::vector<std::vector<int>>& references) const;
  // REQUIRES: `references` are all there are.
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
