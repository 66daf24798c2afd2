// What sequences share: blocks found in the prefix index, blocks that a running one is about to publish, and the beginning
// of a block in which two of them part. With states a prefix is found only where a snapshot of its state is, too.
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
  // enabled: false: nobody shares anything. snapshot_interval: tokens, of states (state_snapshots.h).
  PrefixSharing(SequenceBlocks& blocks, bool enabled, int snapshot_interval = 0);

  // --- Who is about to run
  // Whether a running sequence is about to compute what this one needs next.
  bool is_coming(Sequence& sequence, std::span<Sequence* const> running) const;
  // Begins with the full blocks that are there already. REQUIRES: it has none.
  void match(Sequence& sequence);
  // After them: when a running sequence goes on with the same tokens for a part of the next block, or one that has ended
  // did, that part is copied instead of computed.
  void copy_start(Sequence& sequence, std::span<Sequence* const> running, Plan& plan);
  // It runs: others may wait for the blocks that it is going to compute.
  void claim(Sequence& sequence);

  // --- Who runs
  // Of `count` tokens that its next step may compute, those up to where its state is worth keeping.
  int cut(const Sequence& sequence, int count) const;
  // Offers the blocks that are full now to everybody.
  void publish(Sequence& sequence);
  // Of a sequence that loses its blocks.
  void drop_claims(const Sequence& sequence);
  // Of a sequence that ends: keeps the block in which one of those who wait parts from it.
  void leave_block(const Sequence& sequence, const WaitingQueue& waiting);

  // Gives back what was kept; false: there was nothing. Due when nobody waits any more.
  bool drop_leftovers();
  void reset();  // the index, too

  // The references of what was kept are added to [n_groups][n_blocks].
  void count(std::vector<std::vector<int>>& references) const;
  void check_invariants(bool any_running, bool any_waiting) const;

 private:
  // The block in which a sequence that has ended and one that waits part.
  struct Leftover {
    std::vector<BlockId> blocks;  // [n_groups], each with a reference
    std::vector<TokenId> tokens;  // common to both
    BlockHash before;             // of the n_blocks before it
    int n_blocks = 0;
  };
  struct HashOfHash {
    size_t operator()(const BlockHash& hash) const { return hash.low; }
  };
  static constexpr int kMaxLeftovers = 4;

  bool shares(const Sequence& sequence) const { return enabled_ && sequence.read_cache; }
  int block_size() const { return blocks_.block_size(); }
  int shortest_copy() const { return std::max(1, block_size() / 4); }  // fewer tokens are not worth a copy
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
  bool start_is_coming(const Sequence& sequence, int n_blocks, std::span<Sequence* const> running) const;
  bool leave_block_for(const Sequence& sequence, const Sequence& waiting);
  void keep_block(const Sequence& sequence, int n_blocks, int n_tokens);
  void drop_leftover(Leftover& leftover);
  void drop_claim(const Sequence& sequence, size_t block);

  SequenceBlocks& blocks_;
  const bool enabled_;
  const StateSnapshots snapshots_;
  std::unordered_map<BlockHash, SeqId, HashOfHash> claims_;
  std::vector<Leftover> leftovers_;  // [kMaxLeftovers], those without tokens are free
  int next_leftover_ = 0;
};

}  // namespace penstock
