// Decides what the next step computes. Pure policy over block bookkeeping: no clock, no thread, no tensor.
//
// There are no phases: every running sequence has a gap between its tokens and those computed for it, and a
// step closes part of the gaps within a token budget. Sequences with a gap of one (decoding) come first, so
// prompts never stall them. When blocks run out the sequence that came last gives its blocks back: it goes on
// later from the swap space, if there is one with room for it, and else starts over (its published blocks
// usually survive in the prefix index).
//
// A running sequence without a gap waits for its owner to append a token (beams wait for each other, and who is committed early for
// the step that draws it).
//
// Drafts take what room is left in the budget and among the free blocks after the decoding sequences; nobody
// waits or loses blocks for them.
//
// Background sequences run in the gaps. While others are here, all but one of them pause: they stay where they
// are, with their blocks, which are the first to be taken. Nobody's prompt is taken in by parts for their sake.
//
// A waiting sequence whose next block is being computed by a running one waits for it instead of computing it
// again, and copies what the two have in common of the block in which they part. While somebody waits, a few
// of the sequences that end leave their last block behind for that.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/schedule/plan.h"
#include "engine/schedule/policies.h"
#include "engine/schedule/prefix_sharing.h"
#include "engine/schedule/sequence.h"
#include "engine/schedule/sequence_blocks.h"
#include "engine/schedule/swap_space.h"
#include "engine/schedule/waiting_queue.h"

namespace penstock {

struct SchedulerConfig {
  int max_num_seqs = 64;
  int max_num_batched_tokens = 2048;
  bool prefix_caching = true;
  int state_snapshot_interval = 0;  // tokens (state_snapshots.h)
  bool paged = true;            // false: a sequence takes room for reserved_len tokens when it is admitted
  int reserved_len = 0;         // with paged = false; >= every sequence's max_len
  std::vector<int> swap_slots;  // blocks that fit into the swap space, per group; empty: recompute
};

// What a step may take while others are on their way (stages of a pipeline), so that something is left for the next one.
struct StepShare {
  int n_decoding = 1 << 30;       // sequences with a gap of one
  int n_prompt_tokens = 1 << 30;  // of longer gaps
  bool others_under_way = false;  // sequences without a gap wait for them
};

class Scheduler {
 public:
  // windows[g]: tokens that group g must keep, 0 = all (group 0), kStateWindow = states.
  Scheduler(const SchedulerConfig& config, std::unique_ptr<Policy> policy, std::span<const int> n_blocks,
            std::span<const int> windows, int block_size);

  // The sequence waits for its turn. REQUIRES: 1 <= n_prompt <= n_tokens < max_len; fits() holds.
  void add(Sequence& sequence);
  // Whether n sequences of max_len tokens can ever run here together. From any thread.
  bool fits(int max_len, int n = 1) const;

  // Fills `plan` with the next step. now: seconds, never decreasing. prefill_limit: most tokens of longer
  // gaps while other sequences decode, where the policy spares these. An empty plan means that nothing can
  // run now.
  void next(double now, int prefill_limit, Plan& plan, const StepShare& share = {});

  // After the plan was computed: moves n_computed, publishes full blocks, gives up those behind sliding
  // windows. Drafts do not count yet.
  void commit(const Plan& plan);

  // After a draft was checked: its first n_accepted tokens are computed, the sequence's own and in their
  // slots; the room made for the others is given back.
  void accept_draft(Sequence& sequence, int n_accepted);

  // A sampled token of a sequence, or the one that the token ahead stood for.
  void append(Sequence& sequence, TokenId token);
  // A stand-in for a token that a step under way draws, so that the next step can be planned.
  void append_ahead(Sequence& sequence, TokenId stand_in);
  // The token ahead does not come: its place is free again. again: the last token, computed already, is computed once more.
  void drop_ahead(Sequence& sequence, bool again);

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
  int n_waiting() const { return waiting_.size(); }
  int n_waiting_tokens() const;  // of the first that wait
  bool idle() const { return running_.empty() && waiting_.size() == 0; }
  std::span<Sequence* const> running() const { return running_; }
  // Those of them that the next step may compute; valid until the next call of anything here.
  std::span<Sequence* const> in_turn();
  // Whether one of them is not to wait for prompts when it decodes.
  bool spares(const Sequence& sequence) const;
  // Those that wait and may be admitted beside the running ones.
  int n_candidates() const;
  const BlockAllocator& allocator(int group = 0) const { return blocks_.allocator(group); }
  BlockAllocator& allocator(int group = 0) { return blocks_.allocator(group); }
  int n_groups() const { return blocks_.n_groups(); }
  int state_group() const { return blocks_.state_group(); }
  int block_size() const { return blocks_.block_size(); }
  void reset_prefix_cache() { sharing_.reset(); }
  void check_invariants() const;

  // Tokens looked up in the prefix index and found there, since the start.
  int64_t n_queried() const { return n_queried_; }
  int64_t n_hit() const { return n_hit_; }
  // Share of the running sequences' blocks that holds no token.
  double waste() const;

 private:
  // --- Of those that run
  void schedule(Sequence& sequence, int count, Plan& plan);
  void schedule_drafts(Plan& plan);
  bool reserve(Sequence& sequence, int n_tokens, Plan& plan);  // false: out of blocks, nothing changed
  Sequence* last_running() const;
  void preempt(Sequence& sequence, Plan& plan);
  void note_computed(Sequence& sequence, int n_computed);
  void release_blocks(Sequence& sequence);
  void take_back(Sequence& sequence);

  bool has_background_turn(const Sequence& sequence) const;

  // --- Of those that wait
  void make_room(Sequence& sequence) const;
  void dequeue(Sequence& sequence);
  void admit_waiting(double now, int end, Plan& plan);
  bool may_start(Sequence& sequence) const;
  bool admit(Sequence& sequence, double now, Plan& plan);
  bool has_room_to_grow(const Sequence& sequence) const;
  int wanted_tokens(const Sequence& sequence) const;
  void start_running(Sequence& sequence, double now);
  bool take_place(const Sequence& sequence, double now, Plan& plan);

  SchedulerConfig config_;
  std::unique_ptr<Policy> policy_;
  SequenceBlocks blocks_;
  PrefixSharing sharing_;
  SwapSpace swap_;
  WaitingQueue waiting_;
  std::vector<Sequence*> running_;  // in order of admission
  std::vector<Sequence*> order_;    // in_turn()
  bool others_here_ = false;        // then: not all are in the background
  double others_seen_ = -1e9;       // when somebody was here last who is not in the background
  int64_t n_queried_ = 0, n_hit_ = 0;
};

}  // namespace penstock
