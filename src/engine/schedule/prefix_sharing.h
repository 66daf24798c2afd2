// Sharing of prefixes among sequences: blocks found in the prefix index, blocks that a running
// sequence is about to publish, and a copy of the block in which two sequences diverge. With
// recurrent states a prefix is found only if there is also a snapshot of its state.
//
// Engine thread only.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/schedule/plan.h"
#include "engine/schedule/sequence_blocks.h"
#include "engine/schedule/state_snapshots.h"
#include "engine/schedule/waiting_queue.h"

namespace penstock {

class PrefixSharing {
 public:
  // enabled: false: nothing is shared. snapshot_interval: tokens between snapshots of states
  // (state_snapshots.h).
  PrefixSharing(SequenceBlocks& blocks, bool enabled, int snapshot_interval = 0);

  // --- For a sequence that is about to run
  // Whether a running sequence is about to compute the block that this one needs next.
  bool is_coming(Sequence& sequence, std::span<Sequence* const> running) const;
  // Returns how many leading full blocks match() would find now, and computes the hashes of all that
  // it could find. 0 blocks and no hashes: the sequence reads no cache.
  int look_up(Sequence& sequence) const;
  // Gives the sequence the full blocks of its prefix that are in the prefix index. REQUIRES: it has
  // no blocks.
  void match(Sequence& sequence);
  // Called after match(): when a running sequence, or a leftover block, has the same tokens for a
  // part of the next block, plans a copy of that part.
  void copy_start(Sequence& sequence, std::span<Sequence* const> running, Plan& plan);
  // Claims the blocks that the sequence will compute: others with the same prefix wait for them.
  void claim(Sequence& sequence);

  // --- For a running sequence
  // Returns how many of the `count` tokens that its next step may compute come before the next
  // place for a snapshot of its state.
  int cut(const Sequence& sequence, int count) const;
  // Publishes the sequence's full blocks in the prefix index.
  void publish(Sequence& sequence);
  // Drops the claims of a sequence that loses its blocks.
  void drop_claims(const Sequence& sequence);
  // Called when a sequence ends: keeps the block in which a waiting sequence diverges from it, as a
  // leftover.
  void leave_block(const Sequence& sequence, const WaitingQueue& waiting);

  // Releases all leftovers; false when there were none. Called when no sequence waits any more.
  bool drop_leftovers();
  // Releases all leftovers and empties the prefix index.
  void reset();

  // Adds the references of the leftovers to references[group][block].
  void count(std::vector<std::vector<int>>& references) const;
  void check_invariants(bool any_running, bool any_waiting) const;

 private:
  // A block of a sequence that has ended, in which a waiting sequence diverges from it.
  struct Leftover {
    std::vector<BlockId> blocks;  // [n_groups], each with a reference
    // tokens of the block that both sequences have
    std::vector<TokenId> tokens;
    BlockHash before;  // hash of the n_blocks blocks before it
    int n_blocks = 0;
  };
  struct HashOfHash {
    size_t operator()(const BlockHash& hash) const { return hash.low; }
  };
  static constexpr int kMaxLeftovers = 4;

  bool shares(const Sequence& sequence) const { return enabled_ && sequence.read_cache; }
  int block_size() const { return blocks_.block_size(); }
  // fewer tokens are not worth a copy
  int shortest_copy() const { return std::max(1, block_size() / 4); }
  std::span<const TokenId> tokens_of(const Sequence& sequence, int block) const;
  void hash_full_blocks(Sequence& sequence, int n_blocks) const;
  int find(Sequence& sequence) const;
  int with_claims(const Sequence& sequence, int found) const;
  int find_whole(const Sequence& sequence, int found) const;
  bool has_blocks(const Sequence& sequence, int n_blocks) const;
  bool acquire(Sequence& sequence, int group, int first, int end);
  bool with_states() const { return blocks_.state_group() >= 0; }
  void publish_state(Sequence& sequence);
  int common_start(const Sequence& other, const Sequence& sequence, int n_blocks) const;
  int common_start(const Leftover& leftover, const Sequence& sequence, int n_blocks) const;
  bool start_is_coming(const Sequence& sequence, int n_blocks,
                       std::span<Sequence* const> running) const;
  bool leave_block_for(const Sequence& sequence, const Sequence& waiting);
  void keep_block(const Sequence& sequence, int n_blocks, int n_tokens);
  void drop_leftover(Leftover& leftover);
  void drop_claim(const Sequence& sequence, size_t block);

  SequenceBlocks& blocks_;
  const bool enabled_;
  const StateSnapshots snapshots_;
  // block to the sequence that will compute it
  std::unordered_map<BlockHash, SeqId, HashOfHash> claims_;
  // [kMaxLeftovers]; entries without tokens are free
  std::vector<Leftover> leftovers_;
  int next_leftover_ = 0;
};

}  // namespace penstock
