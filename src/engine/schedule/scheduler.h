// Decides what the next step computes. Pure policy over block bookkeeping: no clock, no thread, no
// tensor.
//
// There are no phases: every running sequence has a gap between its tokens and those computed for
// it, and a step closes part of the gaps within a token budget. Sequences with a gap of one
// (decode) come first, so prefill never stalls them. When blocks run out, the running sequence that
// ranks last is preempted: its blocks are released. It is computed again later, from those of its
// published blocks on that survive in the prefix index, or that a store has.
//
// A running sequence without a gap waits for its owner to append a token (a beam waits for the
// other beams; a sequence that was committed before its step was waited for waits for that step's
// draw).
//
// Drafts take what is left of the budget and of the free blocks after the decoding sequences; no
// sequence waits or is preempted for them.
//
// Background sequences use the capacity that others leave. While others are present, all but one of
// them pause with their blocks, which are the first to be taken. Prefill is not chunked for the
// sake of a background sequence.
//
// Whoever has waited for a while without having anything that runs takes a place of a tenant that
// has several (place_exchange.h).
//
// A waiting sequence whose next block is being computed by a running one waits for that block
// instead of computing it again, and copies the common part of the block in which the two diverge.
// While sequences wait, a few of those that end leave their last block behind for such copies.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/schedule/plan.h"
#include "engine/schedule/policies.h"
#include "engine/schedule/prefix_sharing.h"
#include "engine/schedule/sequence.h"
#include "engine/schedule/sequence_blocks.h"
#include "engine/schedule/waiting_queue.h"

namespace penstock {

struct SchedulerConfig {
  int max_num_seqs = 64;
  int max_num_batched_tokens = 2048;
  bool prefix_caching = true;
  int state_snapshot_interval = 0;  // tokens (state_snapshots.h)
  // false: a sequence takes room for reserved_len tokens when it is admitted
  bool paged = true;
  // with paged = false; >= every sequence's max_len
  int reserved_len = 0;
  // seconds that a tenant without a running sequence waits before it takes another's place
  double exchange_after = 1;
};

// Limits of a step while others are in flight (stages of a pipeline), so that sequences are left
// for the next step.
struct StepShare {
  int n_decoding = 1 << 30;       // most sequences with a gap of one
  int n_prompt_tokens = 1 << 30;  // most tokens of longer gaps
  // other steps are in flight, for whose draws sequences without a gap wait
  bool others_under_way = false;
};

class Scheduler {
 public:
  // windows[g]: tokens that group g must keep, 0 = all (group 0), kStateWindow = states.
  Scheduler(const SchedulerConfig& config, std::unique_ptr<Policy> policy,
            std::span<const int> n_blocks, std::span<const int> windows, int block_size);

  // Adds a sequence to the waiting queue. REQUIRES: 1 <= n_prompt <= n_tokens < max_len; fits()
  // holds.
  void add(Sequence& sequence);
  // Whether n sequences of max_len tokens fit into the cache together when nothing else runs. Any
  // thread.
  bool fits(int max_len, int n = 1) const;

  // Fills `plan` with the next step. now: seconds, never decreasing. prefill_limit: most prefill
  // tokens beside decoding sequences that spares() holds for. An empty plan means that nothing can
  // run now.
  void next(double now, int prefill_limit, Plan& plan, const StepShare& share = {});

  // Called after the plan was computed: advances n_computed, publishes full blocks, releases blocks
  // that slid out of their windows. Draft tokens are not counted as computed.
  void commit(const Plan& plan);

  // Called after a draft was verified: its first n_accepted tokens, which the sequence has and
  // whose K and V are in their slots, count as computed; the blocks reserved for the other draft
  // tokens are released.
  void accept_draft(Sequence& sequence, int n_accepted);

  // Appends a sampled token to the sequence; a stand-in token is replaced by it.
  void append(Sequence& sequence, TokenId token);
  // Appends a stand-in token for the draw of a step in flight, so that the next step can be
  // planned.
  void append_ahead(Sequence& sequence, TokenId stand_in);
  // Removes the stand-in token, whose draw does not come. again: the last real token, computed
  // already, is computed once more.
  void drop_ahead(Sequence& sequence, bool again);

  // Lets a child, which has the tokens of a running parent and one of its own, run from the
  // parent's blocks. Blocks are shared until one of the two writes (copy on write). Falls back to
  // add() when there is no room.
  void fork(const Sequence& parent, Sequence& child);

  // For every i: sequences[i] continues from the state of sequences[parents[i]], plus tokens[i].
  // Blocks are shared until one of them writes. REQUIRES: all are running or waiting and have the
  // same number of tokens.
  void branch(std::span<Sequence* const> sequences, std::span<const int> parents,
              std::span<const TokenId> tokens);

  // Ends a sequence in any state: all its blocks are released at once.
  void finish(Sequence& sequence);

  // Gives up a plan after next(), or carrying it out, threw std::bad_alloc. Waiting sequences stay.
  // Allocates nothing. REQUIRES: all running sequences were finished.
  void abandon();

  int n_running() const { return static_cast<int>(running_.size()); }
  int n_waiting() const { return waiting_.size(); }
  // tokens of the first 16 waiting sequences of each priority
  int n_waiting_tokens() const;
  bool idle() const { return running_.empty() && waiting_.size() == 0; }
  std::span<Sequence* const> running() const { return running_; }
  // The running sequences that the next step may compute; valid until the next call of any method.
  std::span<Sequence* const> in_turn();
  // Whether prefill is limited for the sake of this running sequence when it decodes.
  bool spares(const Sequence& sequence) const;
  // Number of waiting sequences that may be admitted beside the running ones.
  int n_candidates() const;
  const BlockAllocator& allocator(int group = 0) const { return blocks_.allocator(group); }
  BlockAllocator& allocator(int group = 0) { return blocks_.allocator(group); }
  int n_groups() const { return blocks_.n_groups(); }
  // As given to the constructor.
  int window(int group) const { return blocks_.window(group); }
  int state_group() const { return blocks_.state_group(); }
  int block_size() const { return blocks_.block_size(); }
  void reset_prefix_cache() { sharing_.reset(); }
  // As PrefixSharing::look_up().
  int look_up(Sequence& sequence) const { return sharing_.look_up(sequence); }
  // Number of leading full blocks that the sequence could take from a cache: one token at least is
  // computed.
  int n_usable_blocks(const Sequence& sequence) const {
    return (sequence.n_tokens() - 1) / block_size();
  }
  void check_invariants() const;

  // Tokens that were looked up in the prefix index, and those found there, since the start.
  int64_t n_queried() const { return n_queried_; }
  int64_t n_hit() const { return n_hit_; }
  // Share of the room in the running sequences' blocks that holds no token, 0 to 1.
  double waste() const;

 private:
  // --- Running sequences
  void schedule(Sequence& sequence, int count, Plan& plan);
  void schedule_drafts(Plan& plan);
  // false: out of blocks, nothing changed
  bool reserve(Sequence& sequence, int n_tokens, Plan& plan);
  Sequence* last_running() const;
  void preempt(Sequence& sequence, Plan& plan);
  void note_computed(Sequence& sequence, int n_computed);
  void release_blocks(Sequence& sequence);
  void take_back(Sequence& sequence);

  bool has_background_turn(const Sequence& sequence) const;

  // --- Waiting sequences
  void make_room(Sequence& sequence) const;
  void admit_waiting(double now, int end, Plan& plan);
  void rank_waiting(double now);
  void make_way(double now, int end, Plan& plan);
  bool may_start(Sequence& sequence, Plan& plan) const;
  bool admit(Sequence& sequence, double now, Plan& plan);
  bool has_room_to_grow(const Sequence& sequence) const;
  bool has_room_without(const Sequence& sequence, const Sequence& running) const;
  int wanted_tokens(const Sequence& sequence) const;
  void start_running(Sequence& sequence, double now);
  bool may_be_taken(const Sequence& running, int end, const Plan& plan) const;
  bool take_place(const Sequence& sequence, double now, int end, Plan& plan);
  bool begin(Sequence& sequence, double now, int end, Plan& plan);
  void exchange_place(double now, int end, Plan& plan);

  SchedulerConfig config_;
  std::unique_ptr<Policy> policy_;
  SequenceBlocks blocks_;
  PrefixSharing sharing_;
  WaitingQueue waiting_;
  std::vector<Sequence*> running_;  // in order of admission
  std::vector<Sequence*> order_;    // result of in_turn()
  // whether there is a sequence that is not in the background
  bool others_here_ = false;
  double next_exchange_ = -1e9;  // when exchange_place() looks again, seconds
  // doubled where the place that was taken did not suffice: what gave it is computed again in vain
  double exchange_pause_ = 0;
  double others_seen_ = -1e9;  // last time at which there was one, seconds
  int64_t n_queried_ = 0, n_hit_ = 0;
};

}  // namespace penstock
