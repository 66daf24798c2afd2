// The scheduler's side of the swap space: which blocks go out, which come back, which slots are taken.
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
  // n_slots: blocks that fit, per group; empty: there is no swap space. max_seqs: that may run at once.
  SwapSpace(SequenceBlocks& blocks, std::span<const int> n_slots, int max_seqs);

  // A new plan is made: what the last one brought in is in the cache now.
  void begin_plan();

  // Notes where the K and V of a sequence that loses its blocks are to be kept; nothing when there is no room, or when this
  // plan was to bring them back.
  void swap_out(Sequence& sequence, Plan& plan);

  // --- A sequence that comes back, in this order
  // Takes the blocks that are still in the prefix index, if it may, up to the first that is not.
  void acquire_indexed(Sequence& sequence, bool from_index);
  // Whether there are blocks for the rest.
  bool has_room(const Sequence& sequence) const;
  // Blocks for the rest, to be filled before the step. Their slots stay taken until the next plan is made.
  void swap_in(Sequence& sequence, Plan& plan);

  // What is kept of the sequence is not needed, or lost. Allocates nothing.
  void forget(Sequence& sequence);
  // The plan is given up, and what it was to bring in. Allocates nothing.
  void abandon(const Plan& plan);

  // `sequences`: all that run or wait.
  void check_invariants(std::span<const Sequence* const> sequences) const;

 private:
  void give_back(Sequence& sequence);

  SequenceBlocks& blocks_;
  const std::vector<int> n_slots_;
  std::vector<std::vector<int>> free_slots_;  // [n_groups]
  std::vector<Sequence*> coming_;  // by the plan that is being carried out; their slots are still taken
};

}  // namespace penstock
