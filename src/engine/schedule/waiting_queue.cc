#include "engine/schedule/waiting_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace penstock {

uint64_t WaitingQueue::first_turn(int queue) const {
  const auto first =
      std::ranges::find_if(queues_[queue], [](const Sequence* one) { return !one->started; });
  const bool waits = first != queues_[queue].end();
  return turns_[queue].first(waits ? std::optional((*first)->turn) : std::nullopt);
}

void WaitingQueue::add(Sequence& sequence) {
  const int q = queue_of(sequence);
  std::deque<Sequence*>& queue = queues_[q];
  const uint64_t first = sequence.turn == 0 ? first_turn(q) : 0;
  uint64_t* const next =
      sequence.turn == 0 ? &turns_[q].next_of(sequence.tenant, first, queue.size()) : nullptr;
  const uint64_t turn = next == nullptr ? sequence.turn : std::max(*next, first);
  const auto comes_later = [&](const Sequence* other) {
    return std::pair(other->turn, other->arrival_order) > std::pair(turn, sequence.arrival_order);
  };
  auto place = queue.end();
  if (!queue.empty() && comes_later(queue.back())) place = std::ranges::find_if(queue, comes_later);
  queue.insert(place, &sequence);
  if (next != nullptr) *next = turn + static_cast<uint64_t>(sequence.n_turns);
  sequence.turn = turn;
  sequence.state = SeqState::kWaiting;
  ++n_;
}

void WaitingQueue::erase(Sequence& sequence) {
  std::deque<Sequence*>& queue = queues_[queue_of(sequence)];
  const auto found = std::ranges::find(queue, &sequence);
  PENSTOCK_CHECK(found != queue.end());
  queue.erase(found);
  --n_;
}

void WaitingQueue::take(Sequence& sequence) {
  erase(sequence);
  turns_[queue_of(sequence)].note_begun(sequence.turn);
}

void WaitingQueue::remove(Sequence& sequence) {
  erase(sequence);
  const int queue = queue_of(sequence);
  const auto is_of_tenant = [&](const Sequence* other) { return other->tenant == sequence.tenant; };
  if (std::ranges::none_of(queues_[queue], is_of_tenant)) turns_[queue].forget(sequence.tenant);
}

Sequence* WaitingQueue::best(const Policy& policy, double now, std::span<const size_t> skip) const {
  Sequence* best = nullptr;
  double best_rank = 0;
  for (int q = 0; q < kNumClasses; ++q) {
    if (skip[q] >= queues_[q].size() || (q == kBackground && best != nullptr)) continue;
    Sequence* head = queues_[q][skip[q]];
    const double rank = policy.rank(*head, now - head->arrival);
    if (best == nullptr || rank < best_rank ||
        (rank == best_rank && head->arrival_order < best->arrival_order)) {
      best = head;
      best_rank = rank;
    }
  }
  return best;
}

QueueState WaitingQueue::state(const Policy& policy, double now) const {
  QueueState state{.n_waiting = n_};
  if (!policy.looks_at_waiting()) return state;
  for (const auto& queue : queues_) {
    for (const Sequence* sequence : queue) {
      state.oldest_wait = std::max(state.oldest_wait, now - sequence->arrival);
      state.n_waiting_tokens += sequence->n_tokens();
    }
  }
  return state;
}

}  // namespace penstock
