// Decides what the next step computes. Pure policy over block bookkeeping: no clock, no thread, no tensor.
//
// There are no phases: every running sequence has a gap between its tokens and those computed for it, and a
// step closes part of the gaps within a token budget. Sequences with a gap of one (decoding) come first, so
// prompts never stall them. When blocks run out the sequence that came last gives its blocks back: it goes on
// later from the swap space, if there is one with room for it, and else starts over (its published blocks
// usually survive in the prefix index).
//
// A running sequence without a gap waits for its owner to append a token (beams wait for each other).
//
// Drafts take what room is left in the budget and among the free blocks after the decoding sequences; nobody
// waits or loses blocks for them.
//
// A waiting sequence whose next block is being computed by a running one waits for it instead of computing it
// again, and copies what the two have in common of the block in which they part. While somebody waits, a few
// of the sequences that end leave their last block behind for that.
#pragma once
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/block_allocator.h"
#include "cache/cache_spec.h"
#include "engine/policies.h"
#include "engine/sequence.h"
#include "sampling/draft_tree.h"

namespace penstock {

struct SchedulerConfig {
  int max_num_seqs = 64;
  int max_num_batched_tokens = 2048;
  bool prefix_caching = true;
  bool paged = true;            // false: a sequence takes room for reserved_len tokens when it is admitted
  int reserved_len = 0;         // with paged = false; >= every sequence's max_len
  std::vector<int> swap_slots;  // blocks that fit into the swap space, per group; empty: recompute
};

struct ScheduledItem {
  Sequence* sequence = nullptr;
  int first = 0;      // index of the first token computed in this step
  int count = 0;      // with its draft
  bool last = false;  // closes the gap: its last row's logits choose the next token
  int n_draft = 0;    // of count: guessed tokens after the sequence's own, which are to be checked
  const DraftTree* draft = nullptr;  // [n_draft] nodes; the scheduler only makes room for them
};

struct BlockCopy {  // K and V of a whole block, before the step's own tokens are stored
  int group = 0;
  BlockId from{}, to{};
};

// K and V of a whole block, to or from the swap space.
struct SwapMove {
  Sequence* sequence = nullptr;
  int group = 0;
  BlockId block{};
  int slot = 0;
};

// To carry out in this order: swaps_out, copies, swaps_in, items.
struct Plan {
  std::vector<ScheduledItem> items;
  std::vector<BlockCopy> copies;
  std::vector<SwapMove> swaps_out, swaps_in;
  std::vector<Sequence*> admitted, preempted;
  int n_tokens = 0;

  void clear() {
    items.clear(), copies.clear(), swaps_out.clear(), swaps_in.clear(), admitted.clear(), preempted.clear();
    n_tokens = 0;
  }
};

class Scheduler {
 public:
  // windows[g]: tokens that group g must keep, 0 = all (group 0). One allocator per group, owned here.
  Scheduler(const SchedulerConfig& config, std::unique_ptr<Policy> policy, std::span<const int> n_blocks,
            std::span<const int> windows, int block_size);

  // The sequence waits for its turn. REQUIRES: 1 <= n_prompt <= n_tokens < max_len; fits() holds.
  void add(Sequence& sequence);
  // Whether n sequences of max_len tokens can ever run here together. From any thread.
  bool fits(int max_len, int n = 1) const;

  // Fills `plan` with the next step. now: seconds, never decreasing. prefill_limit: most tokens of longer
  // gaps while other sequences decode, where the policy spares these. An empty plan means that nothing can
  // run now.
  void next(double now, int prefill_limit, Plan& plan);

  // After the plan was computed: moves n_computed, publishes full blocks, gives up those behind sliding
  // windows. Drafts do not count yet.
  void commit(const Plan& plan);

  // After a draft was checked: its first n_accepted tokens are computed, the sequence's own and in their
  // slots; the room made for the others is given back.
  void accept_draft(Sequence& sequence, int n_accepted);

  // A sampled token of a running sequence.
  void append(Sequence& sequence, TokenId token) { sequence.tokens.push_back(token); }

  // A child continues a running parent, whose tokens it holds (plus one of its own), from the parent's
  // blocks. They are shared until one of the two writes. Falls back to add() when there is no room.
  void fork(const Sequence& parent, Sequence& child);

  // For every parents[i]: sequence i goes on as sequence parents[i] stood, plus tokens[i]. They share blocks
  // until one of them writes. REQUIRES: all are running or waiting and have the same number of tokens.
  void branch(std::span<Sequence* const> sequences, std::span<const int> parents,
              std::span<const TokenId> tokens);

  // The swap space did not keep what it was given, or does not give it back: the sequence is computed again.
  void lose_swapped(Sequence& sequence, Plan& plan);

  // Ends a sequence in any state: all its blocks are released at once.
  void finish(Sequence& sequence);

  // After next() or what followed it threw std::bad_alloc: the plan is given up. What waits goes on waiting,
  // without what it had or was to have in the swap space; allocates nothing. REQUIRES: all running sequences
  // were finished.
  void abandon(const Plan& plan);

  int n_running() const { return static_cast<int>(running_.size()); }
  int n_waiting() const { return n_waiting_; }
  bool idle() const { return running_.empty() && n_waiting_ == 0; }
  std::span<Sequence* const> running() const { return running_; }
  const BlockAllocator& allocator(int group = 0) const { return groups_[group].allocator; }
  BlockAllocator& allocator(int group = 0) { return groups_[group].allocator; }
  int n_groups() const { return static_cast<int>(groups_.size()); }
  int block_size() const { return block_size_; }
  void reset_prefix_cache();
  void check_invariants() const;

  // Tokens looked up in the prefix index and found there, since the start.
  int64_t n_queried() const { return n_queried_; }
  int64_t n_hit() const { return n_hit_; }
  // Share of the running sequences' blocks that holds no token.
  double waste() const;

 private:
  struct Group {
    BlockAllocator allocator;
    int window;
  };
  struct HashOfHash {
    size_t operator()(const BlockHash& hash) const { return hash.low; }
  };

  void schedule(Sequence& sequence, int count, Plan& plan);
  void schedule_drafts(Plan& plan);
  int tokens_available(const Sequence& sequence) const;
  int tokens_in_blocks(const Sequence& sequence) const;
  int blocks_missing(const Sequence& sequence, size_t group, int n_tokens) const;
  bool writes_shared_block(const Sequence& sequence, size_t group) const;
  bool reserve(Sequence& sequence, int n_tokens, Plan& plan);  // false: out of blocks, nothing changed
  Sequence* last_running() const;
  void preempt(Sequence& sequence, Plan& plan);
  void unschedule(const Sequence& sequence, Plan& plan);
  void release_blocks(Sequence& sequence);

  bool swaps() const { return !config_.swap_slots.empty(); }
  void swap_out(Sequence& sequence, Plan& plan);
  void acquire_swapped(Sequence& sequence);
  bool has_room_for_swapped(const Sequence& sequence) const;
  void swap_in(Sequence& sequence, Plan& plan);
  void forget_swapped(Sequence& sequence);

  void make_room(Sequence& sequence) const;
  void enqueue(Sequence& sequence);
  void dequeue(Sequence& sequence);
  Sequence* best_waiting(double now, std::span<const size_t> skip) const;
  void admit_waiting(double now, int end, Plan& plan);
  bool admit(Sequence& sequence, double now, Plan& plan);
  bool take_place(const Sequence& sequence, double now, Plan& plan);

  // The block in which a sequence that has ended and one that waits part.
  struct Leftover {
    std::vector<BlockId> blocks;  // [n_groups], each with a reference
    std::vector<TokenId> tokens;  // common to both
    BlockHash before;             // of the n_blocks before it
    int n_blocks = 0;
  };
  void leave_block(const Sequence& sequence);
  void keep_block(const Sequence& sequence, int n_blocks, int n_tokens);
  void drop_leftover(Leftover& leftover);
  bool drop_leftovers();  // false: there were none
  int common_start(const Leftover& leftover, const Sequence& sequence, int n_blocks) const;
  const BlockHash& hash_before(const Sequence& sequence, int n_blocks) const {
    return n_blocks == 0 ? sequence.root : sequence.hashes[n_blocks - 1];
  }
  void hash_full_blocks(Sequence& sequence, int n_blocks) const;
  int first_needed(int window, int n_tokens) const;
  bool has_blocks(const Sequence& sequence, int n_blocks) const;
  void match_prefix(Sequence& sequence);
  void copy_common_start(Sequence& sequence, Plan& plan);
  int common_start(const Sequence& other, const Sequence& sequence, int n_blocks) const;
  int shortest_copy() const { return std::max(1, block_size_ / 4); }  // fewer tokens are not worth a copy
  bool waits_for_other(Sequence& sequence) const;
  bool waits_for_start(const Sequence& sequence, int n_blocks) const;
  void claim_blocks(Sequence& sequence);
  void drop_claims(const Sequence& sequence);
  void drop_claim(const Sequence& sequence, size_t block);
  void note_computed(Sequence& sequence, int n_computed);
  void publish_blocks(Sequence& sequence);
  void slide_windows(Sequence& sequence);
  int blocks_for(int n_tokens) const { return (n_tokens + block_size_ - 1) / block_size_; }

  SchedulerConfig config_;
  std::unique_ptr<Policy> policy_;
  std::vector<Group> groups_;
  int block_size_;
  std::vector<Sequence*> running_;     // in order of admission
  std::vector<Sequence*> order_;       // next()'s own copy
  std::vector<Sequence*> swapped_in_;  // by the plan that is being carried out; their slots are still taken
  std::vector<std::vector<int>> free_slots_;  // of the swap space, per group
  std::deque<Sequence*> waiting_[3];          // by priority, each in order of arrival
  int n_waiting_ = 0;
  std::unordered_map<BlockHash, SeqId, HashOfHash>
      claims_;  // prompt blocks that running sequences will publish
  static constexpr int kMaxLeftovers = 4;
  std::vector<Leftover> leftovers_;  // [kMaxLeftovers], those without tokens are free
  int next_leftover_ = 0;
  int64_t n_queried_ = 0, n_hit_ = 0;
};

}  // namespace penstock
