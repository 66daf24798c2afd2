#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/schedule/place_exchange.h"

namespace penstock {

Scheduler::Scheduler(const SchedulerConfig& config, std::unique_ptr<Policy> policy,
                     std::span<const int> n_blocks, std::span<const int> windows, int block_size)
    : config_(config),
      policy_(std::move(policy)),
      blocks_(n_blocks, windows, block_size),
      sharing_(blocks_, config.prefix_caching, config.state_snapshot_interval),
      waiting_(policy_->ranks_priorities()) {
  running_.reserve(config.max_num_seqs + 1);
  order_.reserve(config.max_num_seqs + 1);
}

bool Scheduler::fits(int max_len, int n) const {
  return blocks_.could_hold(config_.paged ? max_len : std::max(max_len, config_.reserved_len), n);
}

void Scheduler::add(Sequence& sequence) {
  make_room(sequence);
  waiting_.add(sequence);
}

// Reserves all memory of the sequence's bookkeeping.
void Scheduler::make_room(Sequence& sequence) const {
  blocks_.make_room(sequence, config_.paged ? sequence.max_len : config_.reserved_len);
}

// --- Background sequences

namespace {

// Limits while other sequences are present:
constexpr int kBackgroundSequences = 1;
constexpr int kBackgroundTokens = 32;  // prompt tokens per step
// Limit of prompt tokens per step otherwise: an arriving sequence waits for the end of the step.
constexpr int kBackgroundStep = 128;
// Limits for kSomeTime after other sequences were present, as more of them are likely to arrive:
// tokens of a step, and the least prompt tokens in it.
constexpr double kSomeTime = 5;  // seconds
constexpr int kShortStepTokens = 32, kLeastOfPrompts = 16;
// Decoding sequences leave few tokens to prompts when they leave at most this fraction of a step.
constexpr int kFewOfStep = 64;

bool in_background(const Sequence& sequence) { return sequence.priority == Priority::kBackground; }

int n_background(std::span<Sequence* const> running) {
  return static_cast<int>(
      std::ranges::count_if(running, [](const Sequence* one) { return in_background(*one); }));
}

bool others_are_here(std::span<Sequence* const> running, const WaitingQueue& waiting) {
  return waiting.size() > waiting.n_background() || n_background(running) < std::ssize(running);
}

// Returns the most prompt tokens of a background-only step, beside n_tokens decoded ones. since:
// seconds since other sequences were present.
int most_without_others(double since, int n_tokens) {
  return since < kSomeTime ? std::max(kShortStepTokens - n_tokens, kLeastOfPrompts)
                           : kBackgroundStep;
}

// Returns the tokens of the first waiting sequences of each queue.
int n_tokens_of(const WaitingQueue& waiting) {
  constexpr size_t kFirst = 16;
  int n = 0;
  for (const auto& queue : waiting.queues()) {
    for (size_t i = 0; i < std::min(queue.size(), kFirst); ++i) n += queue[i]->n_tokens();
  }
  return n;
}

}  // namespace

// Background sequences come last; while others are present, only the first that has a gap runs,
// since sequences of a beam search may wait for each other.
std::span<Sequence* const> Scheduler::in_turn() {
  order_.clear();
  others_here_ = others_are_here(running_, waiting_);
  int left = others_here_ ? kBackgroundSequences : n_running();
  for (const bool behind : {false, true}) {
    for (Sequence* one : running_)
      if (in_background(*one) == behind && (!behind || (one->gap() > 0 && left-- > 0)))
        order_.push_back(one);
  }
  return order_;
}

bool Scheduler::spares(const Sequence& sequence) const {
  return policy_->spares_decoding() && (!in_background(sequence) || !others_here_);
}

// Whether a waiting background sequence may run. A started one may also run when all running ones
// have no gap: beams of its request wait for it.
bool Scheduler::has_background_turn(const Sequence& sequence) const {
  if (n_background(running_) < kBackgroundSequences || !others_here_) return true;
  const auto goes_on = [](const Sequence* one) { return in_background(*one) && one->gap() > 0; };
  return sequence.started && std::ranges::none_of(running_, goes_on);
}

int Scheduler::n_candidates() const {
  return waiting_.size() - (others_are_here(running_, waiting_) ? waiting_.n_background() : 0);
}

// --- Running sequences

void Scheduler::next(double now, int prefill_limit, Plan& plan, const StepShare& share) {
  plan.clear();
  in_turn();
  if (others_here_) others_seen_ = now;
  for (Sequence* sequence : order_) {
    if (sequence->state != SeqState::kRunning || sequence->gap() != 1) continue;
    if (std::ssize(plan.items) < share.n_decoding && plan.n_tokens < config_.max_num_batched_tokens)
      schedule(*sequence, 1, plan);
  }
  schedule_drafts(plan);
  const int beside_decoding = config_.max_num_batched_tokens - plan.n_tokens;
  int left = std::min(beside_decoding, share.n_prompt_tokens);
  if (std::ranges::any_of(plan.items,
                          [&](const ScheduledItem& item) { return spares(*item.sequence); }))
    left = std::min(left, prefill_limit);
  if (!others_here_) left = std::min(left, most_without_others(now - others_seen_, plan.n_tokens));
  const int end = plan.n_tokens + left;  // end of the plan's tokens
  for (Sequence* sequence : order_) {
    if (sequence->state != SeqState::kRunning || sequence->gap() <= 1 || plan.n_tokens >= end)
      continue;
    schedule(*sequence, std::min(sequence->gap(), end - plan.n_tokens), plan);
  }
  if (plan.preempted.empty()) {
    const bool used_up = plan.n_tokens >= config_.max_num_batched_tokens;
    if (used_up && beside_decoding <= std::max(1, config_.max_num_batched_tokens / kFewOfStep))
      make_way(now, end, plan);
    else
      admit_waiting(now, end, plan);
  }
  // All running sequences wait for one that has no room.
  const bool stuck = plan.items.empty() && plan.preempted.empty() && !running_.empty() &&
                     n_waiting() > 0 && !share.others_under_way;
  if (stuck) preempt(*last_running(), plan);
}

// Adds up to `count` tokens of a running sequence to the plan. Makes room by preempting the
// sequence that ranks last, which may be this one.
void Scheduler::schedule(Sequence& sequence, int count, Plan& plan) {
  count = std::min(count, sequence.max_chunk);
  if (in_background(sequence) && others_here_) count = std::min(count, kBackgroundTokens);
  count = std::min(count, std::max(1, blocks_.tokens_available(sequence)));
  count = sharing_.cut(sequence, count);
  if (sequence.input != nullptr) {
    count = sequence.input->without_cut(sequence.n_computed, count,
                                        config_.max_num_batched_tokens - plan.n_tokens);
    if (count == 0) return;
  }
  while (!reserve(sequence, sequence.n_computed + count, plan)) {
    Sequence* victim = last_running();
    preempt(*victim, plan);
    if (victim == &sequence) return;
  }
  plan.items.push_back(
      {&sequence, sequence.n_computed, count, sequence.n_computed + count == sequence.n_tokens()});
  plan.n_tokens += count;
}

// Makes room for the drafts that sequences ask for. While others need blocks, only in blocks that
// the sequence has, and in half of what the step has left. REQUIRES: the plan has decoding sequences
// only.
void Scheduler::schedule_drafts(Plan& plan) {
  const bool others = n_waiting() > 0 || plan.items.size() < running_.size();
  const int left = config_.max_num_batched_tokens - plan.n_tokens;
  const int end = plan.n_tokens + (others ? left / 2 : left);
  for (ScheduledItem& item : plan.items) {
    Sequence& sequence = *item.sequence;
    const int room = others ? blocks_.tokens_in_own(sequence) : blocks_.tokens_available(sequence);
    const int states = blocks_.draft_states_available(1 + n_waiting());
    const int n = std::min({sequence.n_draft, end - plan.n_tokens, room - 1, states});
    if (n <= 0 || !reserve(sequence, item.first + 1 + n, plan)) continue;
    blocks_.reserve_draft_states(sequence, n);
    item.n_draft = n;
    item.count += n;
    plan.n_tokens += n;
  }
}

bool Scheduler::reserve(Sequence& sequence, int n_tokens, Plan& plan) {
  return blocks_.reserve(sequence, n_tokens, plan) ||
         (sharing_.drop_leftovers() && blocks_.reserve(sequence, n_tokens, plan));
}

// Returns the running sequence to be preempted first: background before others, then lowest
// priority, then latest arrival.
Sequence* Scheduler::last_running() const {
  return *std::max_element(
      running_.begin(), running_.end(), [](const Sequence* a, const Sequence* b) {
        if (in_background(*a) != in_background(*b)) return in_background(*b);
        return a->admitted_rank != b->admitted_rank ? a->admitted_rank < b->admitted_rank
                                                    : a->arrival_order < b->arrival_order;
      });
}

void Scheduler::preempt(Sequence& sequence, Plan& plan) {
  plan.preempted.push_back(&sequence);
  plan.drop(sequence);
  if (sequence.gap() == 0) sequence.n_parked = sequence.n_tokens();
  waiting_.add(sequence);  // the last operation that may run out of memory
  std::erase(running_, &sequence);
  take_back(sequence);
  ++sequence.n_preemptions;
  sequence.n_asked = sequence.n_seen = 0;
}

void Scheduler::release_blocks(Sequence& sequence) {
  sharing_.drop_claims(sequence);
  blocks_.release(sequence);
}

// Takes the sequence's blocks, so that all of its tokens are computed again.
void Scheduler::take_back(Sequence& sequence) {
  release_blocks(sequence);
  sequence.n_computed = sequence.n_snapshot = sequence.n_common = 0;
}

void Scheduler::finish(Sequence& sequence) {
  PENSTOCK_CHECK(!sequence.loading);
  if (sequence.state == SeqState::kWaiting) {
    waiting_.remove(sequence);
    if (waiting_.size() == 0) sharing_.drop_leftovers();
  }
  if (sequence.state == SeqState::kRunning) {
    sharing_.leave_block(sequence, waiting_);
    std::erase(running_, &sequence);
  }
  release_blocks(sequence);  // also those of a child whose fork() threw
  sequence.state = SeqState::kFinished;
}

void Scheduler::abandon() {
  sharing_.drop_leftovers();  // some may be copies that were never made
  for (const auto& queue : waiting_.queues()) {
    for (Sequence* sequence : queue) take_back(*sequence);
  }
}

void Scheduler::append(Sequence& sequence, TokenId token) {
  if (std::exchange(sequence.ahead, false)) sequence.tokens.pop_back();
  sequence.tokens.push_back(token);
}

void Scheduler::append_ahead(Sequence& sequence, TokenId stand_in) {
  sequence.tokens.push_back(stand_in);
  sequence.ahead = true;
}

void Scheduler::drop_ahead(Sequence& sequence, bool again) {
  if (std::exchange(sequence.ahead, false)) sequence.tokens.pop_back();
  if (!again) return;
  if (sequence.state == SeqState::kWaiting) return;  // it was preempted meanwhile
  // With sliding windows, blocks that its last token sees may have been released.
  if (n_groups() > 1) return take_back(sequence);
  // one that was preempted and admitted again in one plan has not computed it
  sequence.n_computed = std::min(sequence.n_computed, sequence.n_tokens() - 1);
}

void Scheduler::commit(const Plan& plan) {
  for (const ScheduledItem& item : plan.items) {
    Sequence& sequence = *item.sequence;
    if (sequence.state != SeqState::kRunning || item.is_void) continue;
    // releases states of an unused draft
    if (item.n_draft == 0) blocks_.accept_draft_state(sequence, 0);
    note_computed(sequence, item.first + item.count - item.n_draft);
  }
}

void Scheduler::note_computed(Sequence& sequence, int n_computed) {
  sequence.n_computed = n_computed;
  sharing_.publish(sequence);
  blocks_.slide_windows(sequence);
}

void Scheduler::accept_draft(Sequence& sequence, int n_accepted) {
  PENSTOCK_CHECK(sequence.state == SeqState::kRunning && n_accepted < sequence.gap());
  blocks_.accept_draft_state(sequence, n_accepted);
  if (n_accepted > 0) note_computed(sequence, sequence.n_computed + n_accepted);
  if (config_.paged) blocks_.trim(sequence);
}

// --- Waiting sequences

void Scheduler::admit_waiting(double now, int end, Plan& plan) {
  // most sequences that are skipped in one step, typically because others compute their prefix
  constexpr int kMaxSkipped = 256;
  if (n_waiting() == 0) return;
  rank_waiting(now);
  size_t skip[WaitingQueue::kNumClasses] = {};
  int skipped = 0;
  while (plan.n_tokens < end && skipped < kMaxSkipped) {
    Sequence* sequence = waiting_.best(*policy_, now, skip);
    if (sequence == nullptr) break;
    if (in_background(*sequence) && !has_background_turn(*sequence)) break;
    if (!may_start(*sequence, plan)) {
      ++skip[waiting_.queue_of(*sequence)];
      skipped += sequence->loading ? 0 : 1;  // others do not wait for what takes no time to see
      continue;
    }
    while (!begin(*sequence, now, end, plan)) {
      if (!take_place(*sequence, now, end, plan)) return exchange_place(now, end, plan);
    }
    if (sequence->state != SeqState::kRunning) return;
  }
}

void Scheduler::rank_waiting(double now) {
  QueueState queue = waiting_.state(*policy_, now);
  queue.n_running = n_running() - n_background(running_);
  policy_->begin_step(queue);
}

// Called when decoding sequences use all tokens of the step, as they may in every step while they
// live, or leave so few that a prompt which has them is computed for as long. Gives a place to the
// first waiting sequence if it may preempt one, else to one whose tenant has nothing running.
void Scheduler::make_way(double now, int end, Plan& plan) {
  if (n_waiting() == 0) return;
  rank_waiting(now);
  size_t skip[WaitingQueue::kNumClasses] = {};
  Sequence* first = waiting_.best(*policy_, now, skip);
  if (first == nullptr || in_background(*first)) return;
  if (may_start(*first, plan) && take_place(*first, now, end, plan)) {
    begin(*first, now, end, plan);
  } else {
    exchange_place(now, end, plan);
  }
}

// Admits a waiting sequence and adds what it computes. False: there is no room for it.
bool Scheduler::begin(Sequence& sequence, double now, int end, Plan& plan) {
  const bool fresh = !sequence.started;
  if (!admit(sequence, now, plan)) return false;
  if (fresh) policy_->note_admitted(sequence);
  plan.admitted.push_back(&sequence);
  schedule(sequence, std::min(sequence.gap(), end - plan.n_tokens), plan);
  return true;
}

// Where nothing that waits finds room: for those whose tenant has nothing running.
void Scheduler::exchange_place(double now, int end, Plan& plan) {
  if (now < next_exchange_) return;
  constexpr double kShortest = 0.1, kLongest = 60;
  exchange_pause_ = std::max(exchange_pause_, config_.exchange_after / 4);
  next_exchange_ = now + exchange_pause_;
  const PlaceExchange exchange = find_exchange(
      waiting_, running_,
      {.arrived_by = now - config_.exchange_after,
       .may_start = [&](Sequence& one) { return may_start(one, plan); },
       .may_be_taken = [&](const Sequence& one) { return may_be_taken(one, end, plan); },
       .suffices = [&](const Sequence& one,
                       const Sequence& running) { return has_room_without(one, running); }});
  if (exchange.waiting == nullptr) return;
  preempt(*exchange.running, plan);
  const bool fits = begin(*exchange.waiting, now, end, plan);
  exchange_pause_ = fits ? 0 : std::clamp(2 * exchange_pause_, kShortest, kLongest);
  if (!fits) next_exchange_ = now + exchange_pause_;
}

bool Scheduler::may_start(Sequence& sequence, Plan& plan) const {
  if (sequence.n_tokens() <= sequence.n_parked || sequence.loading) return false;
  if (!sequence.started && !policy_->admits(sequence)) return false;
  // Other sequences do not wait for prefixes that background sequences may compute much later.
  const bool waits_for_prefix = in_background(sequence) || n_background(running_) == 0;
  if (waits_for_prefix && sharing_.is_coming(sequence, running_)) return false;
  // A store is asked again once, that eviction does not keep the sequence waiting for ever.
  if (sequence.n_asked != 1 || sharing_.look_up(sequence) >= sequence.n_seen) return true;
  plan.lost.push_back(&sequence);
  ++sequence.n_asked;
  return false;
}

// Whether a running sequence may be preempted for another, which needs at least one token of the
// step. One that was admitted in this step may not.
bool Scheduler::may_be_taken(const Sequence& running, int end, const Plan& plan) const {
  return plan.n_tokens - plan.tokens_of(running) < end &&
         std::ranges::find(plan.admitted, &running) == plan.admitted.end();
}

// Preempts a running sequence of lower priority in favour of a waiting one; background sequences
// always give way.
bool Scheduler::take_place(const Sequence& sequence, double now, int end, Plan& plan) {
  if (running_.empty()) return false;
  Sequence* victim = last_running();
  if (plan.n_tokens - plan.tokens_of(*victim) >= end) return false;
  if (in_background(*victim) && !in_background(sequence)) {
    preempt(*victim, plan);
    return true;
  }
  if (!policy_->preempts()) return false;
  if (WaitingQueue::class_of(*victim) <= WaitingQueue::class_of(sequence)) return false;
  if (victim->admitted_rank <= policy_->rank(sequence, now - sequence.arrival)) return false;
  if (!may_be_taken(*victim, end, plan)) return false;
  preempt(*victim, plan);
  return true;
}

bool Scheduler::admit(Sequence& sequence, double now, Plan& plan) {
  if (n_running() >= config_.max_num_seqs) return false;
  sharing_.match(sequence);
  if (!running_.empty() && !has_room_to_grow(sequence)) {
    take_back(sequence);
    return sharing_.drop_leftovers() && admit(sequence, now, plan);
  }
  sharing_.copy_start(sequence, running_, plan);
  if (!config_.paged) blocks_.reserve_run(sequence, config_.reserved_len);
  start_running(sequence, now);
  return true;
}

int Scheduler::wanted_tokens(const Sequence& sequence) const {
  return config_.paged ? std::min(sequence.n_tokens() + 1, sequence.max_len) : config_.reserved_len;
}

// Whether there is room for all tokens of the sequence, one more, and some growth of the others:
// otherwise it would soon be preempted.
bool Scheduler::has_room_to_grow(const Sequence& sequence) const {
  const int spare = (n_running() + 3) / 4;
  for (int g = 0; g < n_groups(); ++g) {
    const int kept = blocks_.kept(g, sequence.n_computed, wanted_tokens(sequence));
    const int for_others = blocks_.holds_states(g) ? 0 : spare;  // states do not grow
    const int missing = blocks_.missing(sequence, g, kept) + blocks_.must_copy_state(sequence, g);
    if (missing + for_others > allocator(g).n_available()) return false;
  }
  return true;
}

// Whether the sequence would find room if `running` gave its place: without what it may find in the
// prefix cache, and only by the blocks that `running` shares with nobody.
bool Scheduler::has_room_without(const Sequence& sequence, const Sequence& running) const {
  const int spare = (n_running() + 2) / 4;
  for (int g = 0; g < n_groups(); ++g) {
    const std::vector<BlockId>& blocks = running.kv[static_cast<size_t>(g)].blocks;
    const auto n_freed = std::ranges::count_if(
        blocks, [&](BlockId block) { return allocator(g).references(block) == 1; });
    const int kept = blocks_.kept(g, sequence.n_computed, wanted_tokens(sequence));
    const int for_others = blocks_.holds_states(g) ? 0 : spare;
    if (blocks_.missing(sequence, g, kept) + for_others > allocator(g).n_available() + n_freed)
      return false;
  }
  return true;
}

void Scheduler::start_running(Sequence& sequence, double now) {
  PENSTOCK_CHECK(!sequence.loading);
  waiting_.take(sequence);
  if (waiting_.size() == 0) sharing_.drop_leftovers();
  if (!sequence.started) {
    sequence.n_cached = sequence.n_computed;
    n_queried_ += sequence.n_tokens();
    n_hit_ += sequence.n_computed;
  }
  sequence.started = true;
  sequence.admitted_rank = policy_->rank(sequence, now - sequence.arrival);
  sequence.state = SeqState::kRunning;
  running_.push_back(&sequence);
  sharing_.claim(sequence);
}

// --- Forks

void Scheduler::fork(const Sequence& parent, Sequence& child) {
  make_room(child);
  child.started = true;  // like its parent
  if (child.turn == 0) child.turn = parent.turn;
  if (n_running() >= config_.max_num_seqs || !config_.paged || parent.state != SeqState::kRunning) {
    waiting_.add(child);
    return;
  }
  blocks_.share(parent, child.kv);
  child.n_computed = parent.n_computed;
  child.n_published = parent.n_published;
  child.n_snapshot = parent.n_snapshot;
  const auto n_full = static_cast<ptrdiff_t>(parent.n_computed / block_size());
  child.hashes.assign(parent.hashes.begin(),
                      parent.hashes.begin() + std::min(std::ssize(parent.hashes), n_full));
  child.n_cached = parent.n_cached;
  child.admitted_rank = parent.admitted_rank;
  child.state = SeqState::kRunning;
  running_.push_back(&child);
}

void Scheduler::branch(std::span<Sequence* const> sequences, std::span<const int> parents,
                       std::span<const TokenId> tokens) {
  struct Stand {
    std::vector<TokenId> tokens;
    std::vector<BlockHash> hashes;
    std::vector<GroupBlocks> kv;
    int n_computed = 0, n_published = 0, n_snapshot = 0;
  };
  // All allocations first, including those of add(), so that the changes of blocks cannot fail.
  std::vector<Stand> stands(parents.size());
  for (size_t i = 0; i < parents.size(); ++i) {
    const Sequence& parent = *sequences[parents[i]];
    if (&parent == sequences[i]) continue;
    Stand& stand = stands[i];
    stand.tokens.reserve(parent.max_len + 1);
    stand.tokens = parent.tokens;
    stand.hashes.reserve(parent.max_len / block_size() + 1);
    stand.hashes = parent.hashes;
    stand.kv.resize(n_groups());
    for (int g = 0; g < n_groups(); ++g) stand.kv[g].blocks.reserve(parent.kv[g].blocks.capacity());
  }
  for (size_t i = 0; i < parents.size(); ++i) {
    const Sequence& parent = *sequences[parents[i]];
    if (&parent == sequences[i]) continue;
    if (parent.state != SeqState::kRunning || sequences[i]->state != SeqState::kRunning) continue;
    blocks_.share(parent, stands[i].kv);
    stands[i].n_computed = parent.n_computed;
    stands[i].n_published = parent.n_published;
    stands[i].n_snapshot = parent.n_snapshot;
  }
  for (size_t i = 0; i < parents.size(); ++i) {
    Sequence& sequence = *sequences[i];
    if (sequences[parents[i]] != &sequence) {
      if (sequence.state == SeqState::kRunning) release_blocks(sequence);
      sequence.tokens = std::move(stands[i].tokens);
      sequence.hashes = std::move(stands[i].hashes);
      sequence.kv = std::move(stands[i].kv);
      sequence.n_computed = stands[i].n_computed;
      sequence.n_published = stands[i].n_published;
      sequence.n_snapshot = stands[i].n_snapshot;
    }
    append(sequence, tokens[i]);
  }
}

int Scheduler::n_waiting_tokens() const { return n_tokens_of(waiting_); }

double Scheduler::waste() const {
  int64_t room = 0, filled = 0;
  for (const Sequence* sequence : running_) {
    room += std::ssize(sequence->kv[0].blocks) * block_size();
    filled += sequence->n_computed;
  }
  return room > 0 ? 1.0 - static_cast<double>(filled) / static_cast<double>(room) : 0;
}

void Scheduler::check_invariants() const {
  std::vector<std::vector<int>> references;
  for (int g = 0; g < n_groups(); ++g) references.emplace_back(allocator(g).n_blocks());
  std::vector<const Sequence*> sequences(running_.begin(), running_.end());
  for (const Sequence* sequence : running_) {
    PENSTOCK_CHECK(sequence->state == SeqState::kRunning && sequence->gap() >= 0);
    PENSTOCK_CHECK(!sequence->loading);
    blocks_.count(*sequence, references);
  }
  for (const auto& queue : waiting_.queues()) {
    for (const Sequence* sequence : queue) {
      PENSTOCK_CHECK(sequence->state == SeqState::kWaiting);
      for (const GroupBlocks& kv : sequence->kv) PENSTOCK_CHECK(kv.blocks.empty());
      sequences.push_back(sequence);
    }
  }
  PENSTOCK_CHECK(std::ssize(sequences) == n_running() + n_waiting() &&
                 n_running() <= config_.max_num_seqs);
  sharing_.count(references);
  blocks_.check_invariants(references);
  sharing_.check_invariants(!running_.empty(), n_waiting() > 0);
}

}  // namespace penstock
