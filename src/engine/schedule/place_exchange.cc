#include "engine/schedule/place_exchange.h"

#include <algorithm>
#include <tuple>

namespace penstock {
namespace {

bool is_background(const Sequence& sequence) { return sequence.priority == Priority::kBackground; }

// Sequences of its tenant that run.
int64_t n_of_tenant(std::span<Sequence* const> running, const Sequence& sequence) {
  return std::ranges::count_if(running, [&](const Sequence* one) {
    return one->tenant == sequence.tenant && !is_background(*one);
  });
}

Sequence* place_for(const Sequence& waiting, const WaitingQueue& queue,
                    std::span<Sequence* const> running, const PlaceRules& rules) {
  Sequence* best = nullptr;
  std::tuple<int64_t, int, uint64_t> best_rank;
  for (Sequence* one : running) {
    if (is_background(*one) || queue.queue_of(*one) < queue.queue_of(waiting)) continue;
    const int64_t n = n_of_tenant(running, *one);
    const std::tuple rank{-n, one->n_tokens(), ~one->arrival_order};
    if (n < 2 || (best != nullptr && rank > best_rank)) continue;
    if (!rules.may_be_taken(*one) || !rules.suffices(waiting, *one)) continue;
    best = one;
    best_rank = rank;
  }
  return best;
}

}  // namespace

PlaceExchange find_exchange(const WaitingQueue& waiting, std::span<Sequence* const> running,
                            const PlaceRules& rules) {
  // Mostly all are of one tenant.
  auto has_place = [&, last = uint64_t{0}, any = false](const Sequence& sequence) mutable {
    if (any && sequence.tenant == last) return true;
    any = n_of_tenant(running, sequence) > 0;
    last = sequence.tenant;
    return any;
  };
  int n_tries = 16;
  for (int q = 0; q < WaitingQueue::kBackground; ++q) {
    for (Sequence* sequence : waiting.queues()[q]) {
      if (sequence->arrival > rules.arrived_by || has_place(*sequence)) continue;
      if (!rules.may_start(*sequence)) continue;
      if (Sequence* place = place_for(*sequence, waiting, running, rules)) return {sequence, place};
      if (--n_tries == 0) return {};
    }
  }
  return {};
}

}  // namespace penstock
