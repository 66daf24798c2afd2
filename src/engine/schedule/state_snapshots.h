// Places of snapshots of recurrent states: a prefill step ends there, and the state is published as
// a block of its group, from which sequences with an equal prefix continue.
//
// A prompt leaves a snapshot after its last full block, where it diverges from what others have
// computed, and wherever a step ends for want of room; always after a full block, and at least
// kLeastDistance tokens after the last one. With an interval also every `interval` tokens,
// generated ones included. Tokens that are recomputed after a preemption are not cut into more
// steps: the sequence could be preempted again before it has generated a further token.
#pragma once
#include <span>

#include "engine/schedule/sequence.h"

namespace penstock {

class StateSnapshots {
 public:
  // interval: tokens between snapshots, rounded up to whole blocks; 0 = none at fixed intervals.
  StateSnapshots(int block_size, int interval);

  // Returns how many of the `count` tokens that the next step may compute it should compute: those
  // up to the next place.
  int cut(const Sequence& sequence, int count) const;
  // Whether the state after the sequence's n_computed tokens is to be kept.
  bool is_due(const Sequence& sequence) const;
  // Notes that the sequence, which continues from n_computed, diverges from others after n_blocks
  // common blocks.
  void note_parting(Sequence& sequence, int n_blocks) const;
  // Whether a running sequence is about to leave a snapshot that covers more of `sequence` than one
  // after n_tokens. REQUIRES: the hashes of all these sequences are computed.
  bool is_coming(const Sequence& sequence, int n_tokens, std::span<Sequence* const> running) const;

 private:
  // Least distance of snapshots, tokens: a nearer one costs more (a copy of the state and another
  // step) than it saves.
  static constexpr int kLeastDistance = 64;

  int end_of_prompt(const Sequence& sequence) const;
  // The first place after n_computed tokens, INT_MAX = none.
  int next_place(const Sequence& sequence) const;

  int block_size_, interval_, least_distance_;
};

}  // namespace penstock
