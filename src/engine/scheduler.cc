#include "engine/scheduler.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace penstock {
namespace {

constexpr int kMaxSkipped =
    256;  // waiting sequences passed over in one step because others compute their prefix

int class_of(const Sequence& sequence) { return std::min(static_cast<int>(sequence.priority), 2); }

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, std::unique_ptr<Policy> policy,
                     std::span<const int> n_blocks, std::span<const int> windows, int block_size)
    : config_(config), policy_(std::move(policy)), block_size_(block_size) {
  PENSTOCK_CHECK(n_blocks.size() == windows.size() && !windows.empty());
  for (size_t g = 0; g < windows.size(); ++g)
    groups_.push_back({BlockAllocator(n_blocks[g], block_size), windows[g]});
  leftovers_.resize(kMaxLeftovers);
  for (Leftover& leftover : leftovers_) {
    leftover.blocks.reserve(windows.size());
    leftover.tokens.reserve(block_size);
  }
  running_.reserve(config.max_num_seqs + 1);
  order_.reserve(config.max_num_seqs + 1);
  swapped_in_.reserve(config.max_num_seqs + 1);
  for (const int n_slots : config.swap_slots) {
    std::vector<int>& slots = free_slots_.emplace_back(n_slots);
    for (int i = 0; i < n_slots; ++i) slots[i] = n_slots - 1 - i;
  }
}

bool Scheduler::fits(int max_len, int n) const {
  if (!config_.paged) max_len = std::max(max_len, config_.reserved_len);
  for (const Group& group : groups_) {
    const int kept = group.window > 0 ? std::min(max_len, group.window + 2 * block_size_) : max_len;
    if (int64_t{n} * blocks_for(kept) > group.allocator.n_blocks()) return false;
  }
  return true;
}

void Scheduler::add(Sequence& sequence) {
  make_room(sequence);
  enqueue(sequence);
}

// All memory that its bookkeeping will ever need.
void Scheduler::make_room(Sequence& sequence) const {
  sequence.kv.resize(groups_.size());
  sequence.hashes.reserve(sequence.max_len / block_size_ + 1);
  const int longest = config_.paged ? sequence.max_len : config_.reserved_len;
  for (GroupBlocks& kv : sequence.kv) kv.blocks.reserve(blocks_for(longest) + 1);
}

// Throws std::bad_alloc before it changes anything.
void Scheduler::enqueue(Sequence& sequence) {
  std::deque<Sequence*>& queue = waiting_[class_of(sequence)];
  auto place = queue.end();
  if (!queue.empty() && queue.back()->arrival_order > sequence.arrival_order) {
    place = std::find_if(queue.begin(), queue.end(), [&](const Sequence* other) {
      return other->arrival_order > sequence.arrival_order;
    });
  }
  queue.insert(place, &sequence);
  sequence.state = SeqState::kWaiting;
  ++n_waiting_;
}

void Scheduler::dequeue(Sequence& sequence) {
  std::deque<Sequence*>& queue = waiting_[class_of(sequence)];
  const auto found = std::find(queue.begin(), queue.end(), &sequence);
  PENSTOCK_CHECK(found != queue.end());
  queue.erase(found);
  if (--n_waiting_ == 0) drop_leftovers();
}

void Scheduler::next(double now, int prefill_limit, Plan& plan) {
  plan.clear();
  for (Sequence* sequence : swapped_in_) forget_swapped(*sequence);
  swapped_in_.clear();
  order_.assign(running_.begin(), running_.end());
  for (Sequence* sequence : order_) {
    if (sequence->state != SeqState::kRunning || sequence->gap() != 1) continue;
    if (plan.n_tokens < config_.max_num_batched_tokens) schedule(*sequence, 1, plan);
  }
  schedule_drafts(plan);
  int left = config_.max_num_batched_tokens - plan.n_tokens;
  if (!plan.items.empty() && policy_->spares_decoding()) left = std::min(left, prefill_limit);
  const int end = plan.n_tokens + left;  // of tokens in this plan
  for (Sequence* sequence : order_) {
    if (sequence->state != SeqState::kRunning || sequence->gap() <= 1 || plan.n_tokens >= end) continue;
    schedule(*sequence, std::min(sequence->gap(), end - plan.n_tokens), plan);
  }
  if (plan.preempted.empty()) admit_waiting(now, end, plan);
  // Everybody who runs waits for somebody who has no room.
  const bool stuck = plan.items.empty() && plan.preempted.empty() && !running_.empty() && n_waiting_ > 0;
  if (stuck) preempt(*last_running(), plan);
}

// Adds up to `count` tokens of a running sequence to the plan. Makes room by taking blocks from whoever came
// last, which may be the sequence itself.
void Scheduler::schedule(Sequence& sequence, int count, Plan& plan) {
  count = std::min(count, sequence.max_chunk);
  count = std::min(count, std::max(1, tokens_available(sequence)));
  while (!reserve(sequence, sequence.n_computed + count, plan)) {
    Sequence* victim = last_running();
    preempt(*victim, plan);
    if (victim == &sequence) return;
  }
  plan.items.push_back(
      {&sequence, sequence.n_computed, count, sequence.n_computed + count == sequence.n_tokens()});
  plan.n_tokens += count;
}

// Room for the drafts that sequences ask for. While others need blocks only room that is there already.
// REQUIRES: the plan holds decoding sequences only.
void Scheduler::schedule_drafts(Plan& plan) {
  const bool others = n_waiting_ > 0 || plan.items.size() < running_.size();
  for (ScheduledItem& item : plan.items) {
    Sequence& sequence = *item.sequence;
    const int room = others ? tokens_in_blocks(sequence) : tokens_available(sequence);
    const int n = std::min({sequence.n_draft, config_.max_num_batched_tokens - plan.n_tokens, room - 1});
    if (n <= 0 || !reserve(sequence, item.first + 1 + n, plan)) continue;
    item.n_draft = n;
    item.count += n;
    plan.n_tokens += n;
  }
}

// How many more tokens its own blocks hold.
int Scheduler::tokens_in_blocks(const Sequence& sequence) const {
  int64_t most = std::numeric_limits<int>::max();
  for (const GroupBlocks& kv : sequence.kv) {
    most = std::min(
        most, (kv.first_block + static_cast<int64_t>(kv.blocks.size())) * block_size_ - sequence.n_computed);
  }
  return static_cast<int>(most);
}

// How many more tokens the blocks at hand would hold.
int Scheduler::tokens_available(const Sequence& sequence) const {
  int64_t most = std::numeric_limits<int>::max();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupBlocks& kv = sequence.kv[g];
    const int64_t blocks =
        kv.first_block + static_cast<int64_t>(kv.blocks.size()) + groups_[g].allocator.n_available();
    most = std::min(most, blocks * block_size_ - sequence.n_computed);
  }
  return static_cast<int>(most);
}

int Scheduler::blocks_missing(const Sequence& sequence, size_t group, int n_tokens) const {
  const GroupBlocks& kv = sequence.kv[group];
  return std::max(0, blocks_for(n_tokens) - kv.first_block - static_cast<int>(kv.blocks.size()));
}

// The block that the next token is written into, when others use it too.
bool Scheduler::writes_shared_block(const Sequence& sequence, size_t group) const {
  if (sequence.n_computed % block_size_ == 0) return false;
  const GroupBlocks& kv = sequence.kv[group];
  const BlockId block = kv.blocks[sequence.n_computed / block_size_ - kv.first_block];
  return groups_[group].allocator.references(block) > 1;
}

bool Scheduler::reserve(Sequence& sequence, int n_tokens, Plan& plan) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int needed = blocks_missing(sequence, g, n_tokens) + writes_shared_block(sequence, g);
    if (needed > groups_[g].allocator.n_available())
      return drop_leftovers() && reserve(sequence, n_tokens, plan);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    BlockAllocator& allocator = groups_[g].allocator;
    GroupBlocks& kv = sequence.kv[g];
    if (writes_shared_block(sequence, g)) {
      BlockId& block = kv.blocks[sequence.n_computed / block_size_ - kv.first_block];
      plan.copies.push_back({static_cast<int>(g), block, block});
      allocator.release(block);
      block = plan.copies.back().to = *allocator.allocate();
    }
    for (int missing = blocks_missing(sequence, g, n_tokens); missing > 0; --missing) {
      kv.blocks.push_back(*allocator.allocate());
    }
  }
  return true;
}

// The running sequence that loses its blocks first: lowest priority, then latest arrival.
Sequence* Scheduler::last_running() const {
  return *std::max_element(running_.begin(), running_.end(), [](const Sequence* a, const Sequence* b) {
    return a->admitted_rank != b->admitted_rank ? a->admitted_rank < b->admitted_rank
                                                : a->arrival_order < b->arrival_order;
  });
}

void Scheduler::unschedule(const Sequence& sequence, Plan& plan) {
  std::erase_if(plan.items, [&](const ScheduledItem& item) {
    if (item.sequence == &sequence) plan.n_tokens -= item.count;
    return item.sequence == &sequence;
  });
}

void Scheduler::preempt(Sequence& sequence, Plan& plan) {
  plan.preempted.push_back(&sequence);
  unschedule(sequence, plan);
  if (std::erase(swapped_in_, &sequence) > 0) {  // by this very plan: its content is still out there
    std::erase_if(plan.swaps_in, [&](const SwapMove& move) { return move.sequence == &sequence; });
  } else {
    swap_out(sequence, plan);
  }
  if (sequence.gap() == 0) sequence.n_parked = sequence.n_tokens();
  enqueue(sequence);  // the last that can run out of memory
  std::erase(running_, &sequence);
  release_blocks(sequence);
  sequence.n_computed = 0;
  ++sequence.n_preemptions;
}

void Scheduler::release_blocks(Sequence& sequence) {
  drop_claims(sequence);
  for (size_t g = 0; g < sequence.kv.size(); ++g) {
    GroupBlocks& kv = sequence.kv[g];
    // Last block first: a prefix is evicted from its end.
    while (!kv.blocks.empty()) {
      groups_[g].allocator.release(kv.blocks.back());
      kv.blocks.pop_back();
    }
    kv.first_block = 0;
  }
  sequence.n_published = 0;
}

void Scheduler::finish(Sequence& sequence) {
  std::erase(swapped_in_, &sequence);
  forget_swapped(sequence);
  if (sequence.state == SeqState::kWaiting) dequeue(sequence);
  if (sequence.state == SeqState::kRunning) {
    leave_block(sequence);
    std::erase(running_, &sequence);
  }
  release_blocks(sequence);  // of a child whose fork() threw as well
  sequence.state = SeqState::kFinished;
}

void Scheduler::abandon(const Plan& plan) {
  for (const SwapMove& move : plan.swaps_out) forget_swapped(*move.sequence);
  for (Sequence* sequence : swapped_in_) forget_swapped(*sequence);
  swapped_in_.clear();
  drop_leftovers();  // perhaps of copies that were never made
  for (const auto& queue : waiting_) {
    for (Sequence* sequence : queue) {
      release_blocks(*sequence);
      sequence->n_computed = 0;
    }
  }
}

// --- Admission ---

Sequence* Scheduler::best_waiting(double now, std::span<const size_t> skip) const {
  Sequence* best = nullptr;
  double best_rank = 0;
  for (int c = 0; c < 3; ++c) {
    if (skip[c] >= waiting_[c].size()) continue;
    Sequence* head = waiting_[c][skip[c]];
    const double rank = policy_->rank(*head, now - head->arrival);
    if (best == nullptr || rank < best_rank ||
        (rank == best_rank && head->arrival_order < best->arrival_order)) {
      best = head;
      best_rank = rank;
    }
  }
  return best;
}

void Scheduler::admit_waiting(double now, int end, Plan& plan) {
  if (n_waiting_ == 0) return;
  QueueState queue{n_running(), n_waiting_, 0, 0};
  for (const auto& waiting : waiting_) {
    if (!waiting.empty()) queue.oldest_wait = std::max(queue.oldest_wait, now - waiting.front()->arrival);
    if (!policy_->wants_tokens()) continue;
    for (const Sequence* sequence : waiting) queue.n_waiting_tokens += sequence->n_tokens();
  }
  policy_->begin_step(queue);
  size_t skip[3] = {0, 0, 0};
  int skipped = 0;
  while (plan.n_tokens < end && skipped < kMaxSkipped) {
    Sequence* sequence = best_waiting(now, skip);
    if (sequence == nullptr) break;
    const bool fresh = !sequence->started;
    const bool parked = sequence->n_tokens() <= sequence->n_parked;
    if (parked || (fresh && !policy_->admits(*sequence)) ||
        (sequence->n_swapped == 0 && waits_for_other(*sequence))) {
      ++skip[class_of(*sequence)];
      ++skipped;
      continue;
    }
    while (!admit(*sequence, now, plan)) {
      if (!take_place(*sequence, now, plan)) return;
    }
    if (fresh) policy_->note_admitted(*sequence);
    plan.admitted.push_back(sequence);
    schedule(*sequence, std::min(sequence->gap(), end - plan.n_tokens), plan);
    if (sequence->state != SeqState::kRunning) return;
  }
}

// Preempts a running sequence of lower priority in favour of a waiting one.
bool Scheduler::take_place(const Sequence& sequence, double now, Plan& plan) {
  if (!policy_->preempts() || running_.empty()) return false;
  Sequence* victim = last_running();
  if (class_of(*victim) <= class_of(sequence)) return false;
  if (victim->admitted_rank <= policy_->rank(sequence, now - sequence.arrival)) return false;
  if (std::find(plan.admitted.begin(), plan.admitted.end(), victim) != plan.admitted.end()) return false;
  preempt(*victim, plan);
  return true;
}

bool Scheduler::admit(Sequence& sequence, double now, Plan& plan) {
  if (n_running() >= config_.max_num_seqs) return false;
  if (sequence.n_swapped > 0) {
    acquire_swapped(sequence);
  } else if (sequence.read_cache && config_.prefix_caching) {
    match_prefix(sequence);
  }
  // Room for all its tokens and one more, and a little for the others to grow: otherwise it would be
  // preempted soon.
  const int wanted =
      config_.paged ? std::min(sequence.n_tokens() + 1, sequence.max_len) : config_.reserved_len;
  const int spare = (n_running() + 3) / 4;
  const auto kept = [&](size_t group) {
    const int window = groups_[group].window;
    return window > 0 ? std::min(wanted, sequence.n_computed + window + 2 * block_size_) : wanted;
  };
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (blocks_missing(sequence, g, kept(g)) + spare > groups_[g].allocator.n_available() &&
        !running_.empty()) {
      release_blocks(sequence);
      sequence.n_computed = 0;
      return drop_leftovers() && admit(sequence, now, plan);
    }
  }
  if (sequence.n_swapped > 0 && !has_room_for_swapped(sequence)) {  // nothing runs, others hold blocks
    release_blocks(sequence);
    sequence.n_computed = 0;
    if (!drop_leftovers()) forget_swapped(sequence);
    return admit(sequence, now, plan);
  }
  if (sequence.n_swapped > 0) {
    swap_in(sequence, plan);
  } else if (sequence.read_cache && config_.prefix_caching) {
    copy_common_start(sequence, plan);
  }
  if (!config_.paged) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (int missing = blocks_missing(sequence, g, kept(g)); missing > 0; --missing) {
        const std::optional<BlockId> block = groups_[g].allocator.allocate();
        if (!block) break;  // of a window: its older blocks come back as it slides
        sequence.kv[g].blocks.push_back(*block);
      }
    }
  }
  dequeue(sequence);
  if (!sequence.started) {
    sequence.n_cached = sequence.n_computed;
    n_queried_ += sequence.n_tokens();
    n_hit_ += sequence.n_computed;
  }
  sequence.started = true;
  sequence.admitted_rank = policy_->rank(sequence, now - sequence.arrival);
  sequence.state = SeqState::kRunning;
  running_.push_back(&sequence);
  if (config_.prefix_caching) claim_blocks(sequence);
  return true;
}

void Scheduler::fork(const Sequence& parent, Sequence& child) {
  make_room(child);
  child.started = true;  // with its parent
  if (n_running() >= config_.max_num_seqs || !config_.paged || parent.state != SeqState::kRunning) {
    enqueue(child);
    return;
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupBlocks& from = parent.kv[g];
    GroupBlocks& to = child.kv[g];
    to.first_block = from.first_block;
    const size_t used = blocks_for(parent.n_computed) - from.first_block;
    to.blocks.assign(from.blocks.begin(), from.blocks.begin() + static_cast<ptrdiff_t>(used));
    for (const BlockId block : to.blocks) groups_[g].allocator.retain(block);
  }
  child.n_computed = parent.n_computed;
  child.n_published = parent.n_published;
  child.hashes.assign(
      parent.hashes.begin(),
      parent.hashes.begin() +
          std::min<ptrdiff_t>(static_cast<ptrdiff_t>(parent.hashes.size()), parent.n_computed / block_size_));
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
    int n_computed = 0, n_published = 0;
  };
  // All memory first, with the room that add() makes, so that what changes the blocks cannot fail.
  std::vector<Stand> stands(parents.size());
  for (size_t i = 0; i < parents.size(); ++i) {
    const Sequence& parent = *sequences[parents[i]];
    if (&parent == sequences[i]) continue;
    Stand& stand = stands[i];
    stand.tokens.reserve(parent.max_len + 1);
    stand.tokens = parent.tokens;
    stand.hashes.reserve(parent.max_len / block_size_ + 1);
    stand.hashes = parent.hashes;
    stand.kv.resize(groups_.size());
    for (GroupBlocks& kv : stand.kv) kv.blocks.reserve(blocks_for(parent.max_len) + 1);
  }
  for (size_t i = 0; i < parents.size(); ++i) {
    const Sequence& parent = *sequences[parents[i]];
    if (&parent == sequences[i]) continue;
    Stand& stand = stands[i];
    if (parent.state != SeqState::kRunning || sequences[i]->state != SeqState::kRunning) continue;
    stand.n_computed = parent.n_computed;
    stand.n_published = parent.n_published;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const GroupBlocks& from = parent.kv[g];
      const int used = blocks_for(parent.n_computed) - from.first_block;
      stand.kv[g].first_block = from.first_block;
      stand.kv[g].blocks.assign(from.blocks.begin(), from.blocks.begin() + used);
      for (const BlockId block : stand.kv[g].blocks) groups_[g].allocator.retain(block);
    }
  }
  for (size_t i = 0; i < parents.size(); ++i) {
    Sequence& sequence = *sequences[i];
    if (sequences[parents[i]] != &sequence) {
      forget_swapped(sequence);  // that of other tokens
      if (sequence.state == SeqState::kRunning) release_blocks(sequence);
      sequence.tokens = std::move(stands[i].tokens);
      sequence.hashes = std::move(stands[i].hashes);
      sequence.kv = std::move(stands[i].kv);
      sequence.n_computed = stands[i].n_computed;
      sequence.n_published = stands[i].n_published;
    }
    append(sequence, tokens[i]);
  }
}

void Scheduler::slide_windows(Sequence& sequence) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].window == 0) continue;
    GroupBlocks& kv = sequence.kv[g];
    const int first = first_needed(groups_[g].window, sequence.n_computed);
    const int n_gone = std::min(first - kv.first_block, static_cast<int>(kv.blocks.size()));
    if (n_gone <= 0) continue;
    for (int i = 0; i < n_gone; ++i) groups_[g].allocator.release(kv.blocks[i]);
    kv.blocks.erase(kv.blocks.begin(), kv.blocks.begin() + n_gone);
    kv.first_block += n_gone;
  }
}

void Scheduler::commit(const Plan& plan) {
  for (const ScheduledItem& item : plan.items) {
    Sequence& sequence = *item.sequence;
    if (sequence.state != SeqState::kRunning) continue;
    note_computed(sequence, item.first + item.count - item.n_draft);
  }
}

void Scheduler::note_computed(Sequence& sequence, int n_computed) {
  sequence.n_computed = n_computed;
  if (config_.prefix_caching) publish_blocks(sequence);
  slide_windows(sequence);
}

void Scheduler::accept_draft(Sequence& sequence, int n_accepted) {
  PENSTOCK_CHECK(sequence.state == SeqState::kRunning && n_accepted < sequence.gap());
  if (n_accepted > 0) note_computed(sequence, sequence.n_computed + n_accepted);
  if (!config_.paged) return;
  for (size_t g = 0; g < groups_.size(); ++g) {
    GroupBlocks& kv = sequence.kv[g];
    while (kv.first_block + static_cast<int>(kv.blocks.size()) > blocks_for(sequence.n_tokens())) {
      groups_[g].allocator.release(kv.blocks.back());
      kv.blocks.pop_back();
    }
  }
}

void Scheduler::reset_prefix_cache() {
  drop_leftovers();
  for (Group& group : groups_) group.allocator.clear_index();
}

double Scheduler::waste() const {
  int64_t room = 0, filled = 0;
  for (const Sequence* sequence : running_) {
    const GroupBlocks& kv = sequence->kv[0];
    room += static_cast<int64_t>(kv.blocks.size()) * block_size_;
    filled += sequence->n_computed;
  }
  return room > 0 ? 1.0 - static_cast<double>(filled) / static_cast<double>(room) : 0;
}

void Scheduler::check_invariants() const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const BlockAllocator& allocator = groups_[g].allocator;
    allocator.check_invariants();
    std::vector<int> references(allocator.n_blocks());
    for (const Sequence* sequence : running_) {
      PENSTOCK_CHECK(sequence->state == SeqState::kRunning && sequence->gap() >= 0);
      const GroupBlocks& kv = sequence->kv[g];
      const int end = kv.first_block + static_cast<int>(kv.blocks.size());
      PENSTOCK_CHECK(end >= blocks_for(sequence->n_computed));
      for (const BlockId block : kv.blocks) ++references[static_cast<uint32_t>(block)];
    }
    for (const Leftover& leftover : leftovers_) {
      if (!leftover.blocks.empty()) ++references[static_cast<uint32_t>(leftover.blocks[g])];
      PENSTOCK_CHECK(leftover.blocks.empty() || n_waiting_ > 0);
    }
    for (int i = 0; i < allocator.n_blocks(); ++i)
      PENSTOCK_CHECK(allocator.references(BlockId(i)) == references[i]);
  }
  int n_waiting = 0;
  std::vector<size_t> n_slots_taken(free_slots_.size());
  const auto count_slots = [&](const Sequence& sequence) {
    for (size_t g = 0; g < free_slots_.size() && sequence.n_swapped > 0; ++g)
      n_slots_taken[g] += sequence.swapped[g].slots.size();
  };
  for (const Sequence* sequence : running_) count_slots(*sequence);
  for (const auto& queue : waiting_) {
    for (const Sequence* sequence : queue) {
      PENSTOCK_CHECK(sequence->state == SeqState::kWaiting);
      count_slots(*sequence);
      for (const GroupBlocks& kv : sequence->kv) PENSTOCK_CHECK(kv.blocks.empty());
      ++n_waiting;
    }
  }
  PENSTOCK_CHECK(n_waiting == n_waiting_ && n_running() <= config_.max_num_seqs);
  if (running_.empty()) PENSTOCK_CHECK(claims_.empty());
  for (size_t g = 0; g < free_slots_.size(); ++g)
    PENSTOCK_CHECK(n_slots_taken[g] + free_slots_[g].size() == static_cast<size_t>(config_.swap_slots[g]));
}

}  // namespace penstock
