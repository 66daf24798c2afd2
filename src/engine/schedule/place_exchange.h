// Places between tenants: whoever has waited for a while without having anything that runs takes the
// place of a sequence of a tenant that has several.
#pragma once
#include <functional>
#include <span>

#include "engine/schedule/waiting_queue.h"

namespace penstock {

struct PlaceExchange {
  Sequence* waiting = nullptr;  // null: nobody gets a place in this way
  Sequence* running = nullptr;  // whose place it gets
};

struct PlaceRules {
  // the waiting sequence has arrived by then, in seconds as Sequence::arrival
  double arrived_by = 0;
  std::function<bool(Sequence&)> may_start;           // of a waiting sequence
  std::function<bool(const Sequence&)> may_be_taken;  // of a running one
  // whether the waiting sequence (first) finds room once the running one has given its place
  std::function<bool(const Sequence&, const Sequence&)> suffices;
};

// The first of those that wait whose tenant has nothing running, and of the tenant that has the
// most running, two at least, the shortest sequence that suffices: it is computed again soonest. Sequences in the
// background have no part in it, and those of lower priority take no place of others.
PlaceExchange find_exchange(const WaitingQueue& waiting, std::span<Sequence* const> running,
                            const PlaceRules& rules);

}  // namespace penstock
