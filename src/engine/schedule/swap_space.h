// The scheduler's side of the swap space: which blocks are swapped out and in, and which slots are
// taken.
//
// Engine thread only.
#pragma once
#include <span>
#include <vector>

#include "engine/schedule/plan.h"
#include "engine/schedule/sequence_blocks.h"

namespace penstock {

class SwapSpace {
 public:
  // n_slots: blocks that fit, per group; empty: there is no swap space. max_seqs: most sequences
  // that run at once.
  SwapSpace(SequenceBlocks& blocks, std::span<const int> n_slots, int max_seqs);

  // Called when a new plan is begun: frees the slots of the blocks that the last plan swapped in.
  void begin_plan();

  // Plans to swap out the blocks of a preempted sequence; does nothing when there is no room. When
  // the same plan was to swap them in, that is undone.
  void swap_out(Sequence& sequence, Plan& plan);

  // --- For a swapped sequence that is to run again, in this order
  // Takes its leading blocks from the prefix index, up to the first that is not there. from_index:
  // false: none.
  void acquire_indexed(Sequence& sequence, bool from_index);
  // Whether there are free blocks for all blocks that acquire_indexed() did not find.
  bool has_room(const Sequence& sequence) const;
  // Allocates these blocks and plans to swap them in. Their slots stay taken until the next
  // plan is begun.
  void swap_in(Sequence& sequence, Plan& plan);

  // Frees the sequence's slots, whose content is not needed or was lost. Allocates nothing.
  void forget(Sequence& sequence);
  // Gives up a plan: frees the slots of what it was to swap out or in. Allocates nothing.
  void abandon(const Plan& plan);

  // sequences: all that run or wait.
  void check_invariants(std::span<const Sequence* const> sequences) const;

 private:
  void give_back(Sequence& sequence);

  SequenceBlocks& blocks_;
  const std::vector<int> n_slots_;
  std::vector<std::vector<int>> free_slots_;  // [n_groups]
  // sequences that the current plan swaps in; their slots are still taken
  std::vector<Sequence*> coming_;
};

}  // namespace penstock
