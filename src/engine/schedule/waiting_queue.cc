#include "engine/schedule/waiting_queue.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {

void WaitingQueue::add(Sequence& sequence) {
  std::deque<Sequence*>& queue = queues_[class_of(sequence)];
  auto place = queue.end();
  if (!queue.empty() && queue.back()->arrival_order > sequence.arrival_order) {
    place = std::ranges::find_if(
        queue, [&](const Sequence* other) { return other->arrival_order > sequence.arrival_order; });
  }
  queue.insert(place, &sequence);
  sequence.state = SeqState::kWaiting;
  ++n_;
}

void WaitingQueue::remove(Sequence& sequence) {
  std::deque<Sequence*>& queue = queues_[class_of(sequence)];
  const auto found = std::ranges::find(queue, &sequence);
  PENSTOCK_CHECK(found != queue.end());
  queue.erase(found);
  --n_;
}

Sequence* WaitingQueue::best(const Policy& policy, double now, std::span<const size_t> skip) const {
  Sequence* best = nullptr;
  double best_rank = 0;
  for (int c = 0; c < kNumClasses; ++c) {
    if (skip[c] >= queues_[c].size() || (c == kBackground && best != nullptr)) continue;
    Sequence* head = queues_[c][skip[c]];
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
  for (const auto& queue : queues_) {
    if (!queue.empty()) state.oldest_wait = std::max(state.oldest_wait, now - queue.front()->arrival);
    if (!policy.wants_tokens()) continue;
    for (const Sequence* sequence : queue) state.n_waiting_tokens += sequence->n_tokens();
  }
  return state;
}

}  // namespace penstock
