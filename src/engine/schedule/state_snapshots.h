// Where the state of a sequence is worth keeping: at these places its prompt is cut, so that a step ends there, and the
// state is published as a block of its group, from which equal prefixes go on.
//
// A prompt leaves one behind its last full block, one where it parts from what others have computed, and one wherever a step
// ends for want of room; all behind a full block, and far enough from the one before. With an interval also every so many
// tokens, of what is generated too. What is computed again after a preemption is not cut: in more steps than it takes it could lose
// its blocks each time before it has got a token further.
#pragma once
#include <span>

#include "engine/schedule/sequence.h"

namespace penstock {

class StateSnapshots {
 public:
  // interval: tokens, rounded up to whole blocks; 0 = no fixed places.
  StateSnapshots(int block_size, int interval);

  // Of `count` tokens that the next step may compute: those up to the first place where it had better end.
  int cut(const Sequence& sequence, int count) const;
  // Whether the state is to be kept as it is after n_computed tokens.
  bool is_due(const Sequence& sequence) const;
  // Notes where a sequence that goes on from n_computed parts from others: behind n_blocks that they have in common.
  void note_parting(Sequence& sequence, int n_blocks) const;
  // Whether one of those that run is about to leave a snapshot that serves `sequence` better than one behind n_tokens.
  // REQUIRES: both know their hashes.
  bool is_coming(const Sequence& sequence, int n_tokens, std::span<Sequence* const> running) const;

 private:
  // Nearer to the one before a snapshot costs more than it saves: a copy of the state, and a step more.
  static constexpr int kLeastDistance = 64;

  int end_of_prompt(const Sequence& sequence) const;
  // The first place behind n_computed, INT_MAX = none.
  int next_place(const Sequence& sequence) const;

  int block_size_, interval_, least_distance_;
};

}  // namespace penstock
