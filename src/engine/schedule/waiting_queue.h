// The sequences that wait for their turn, by priority and in order of arrival.
//
// Engine thread only.
#pragma once
#include <array>
#include <deque>
#include <span>

#include "engine/schedule/background.h"
#include "engine/schedule/policies.h"
#include "engine/schedule/sequence.h"

namespace penstock {

class WaitingQueue {
 public:
  static constexpr int kNumClasses = 4, kBackground = static_cast<int>(kBackgroundPriority);
  using Queues = std::array<std::deque<Sequence*>, kNumClasses>;
  static int class_of(const Sequence& sequence) {
    return std::min(static_cast<int>(sequence.priority), kNumClasses - 1);
  }

  // Throws std::bad_alloc before it changes anything.
  void add(Sequence& sequence);
  // REQUIRES: it waits.
  void remove(Sequence& sequence);
  int size() const { return n_; }
  int n_background() const { return static_cast<int>(queues_[kBackground].size()); }
  const Queues& by_priority() const { return queues_; }

  // The one that the policy ranks first, not counting the first skip[c] of every class; in the background only where there is no
  // other. Null: none.
  Sequence* best(const Policy& policy, double now, std::span<const size_t> skip) const;
  // What a policy is told, but for the running ones.
  QueueState state(const Policy& policy, double now) const;

 private:
  Queues queues_;
  int n_ = 0;
};

}  // namespace penstock
