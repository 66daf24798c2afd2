#include "engine/schedule/waiting_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace penstock {

// Of one that comes. Looks from the last one on: it is mostly of the same tenant.
uint64_t WaitingQueue::turn_of(const Sequence& sequence) const {
  const int q = queue_of(sequence);
  for (auto other = queues_[q].rbegin(); other != queues_[q].rend() && (*other)->turn > turn_[q]; ++other) {
    if ((*other)->tenant == sequence.tenant) return (*other)->turn + static_cast<uint64_t>((*other)->n_turns);
  }
  return turn_[q] + 1;
}

void WaitingQueue::add(Sequence& sequence) {
  std::deque<Sequence*>& queue = queues_[queue_of(sequence)];
  const uint64_t turn = sequence.turn != 0 ? sequence.turn : turn_of(sequence);
  const auto comes_later = [&](const Sequence* other) {
    return std::pair(other->turn, other->arrival_order) > std::pair(turn, sequence.arrival_order);
  };
  auto place = queue.end();
  if (!queue.empty() && comes_later(queue.back())) place = std::ranges::find_if(queue, comes_later);
  queue.insert(place, &sequence);
  sequence.turn = turn;
  sequence.state = SeqState::kWaiting;
  ++n_;
}

void WaitingQueue::take(Sequence& sequence) {
  remove(sequence);
  uint64_t& last = turn_[queue_of(sequence)];
  last = std::max(last, sequence.turn);
}

void WaitingQueue::remove(Sequence& sequence) {
  std::deque<Sequence*>& queue = queues_[queue_of(sequence)];
  const auto found = std::ranges::find(queue, &sequence);
  PENSTOCK_CHECK(found != queue.end());
  queue.erase(found);
  --n_;
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
