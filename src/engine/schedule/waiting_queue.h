// The waiting sequences, by priority and in order of arrival.
//
// Engine thread only.
#pragma once
#include <array>
#include <deque>
#include <span>

#include "engine/schedule/policies.h"
#include "engine/schedule/sequence.h"

namespace penstock {

class WaitingQueue {
 public:
  static constexpr int kNumClasses = 4, kBackground = static_cast<int>(Priority::kBackground);
  using Queues = std::array<std::deque<Sequence*>, kNumClasses>;
  static int class_of(const Sequence& sequence) {
    return std::min(static_cast<int>(sequence.priority), kNumClasses - 1);
  }

  // Throws std::bad_alloc and then changes nothing.
  void add(Sequence& sequence);
  // REQUIRES: the sequence is in the queue.
  void remove(Sequence& sequence);
  int size() const { return n_; }
  int n_background() const { return static_cast<int>(queues_[kBackground].size()); }
  const Queues& by_priority() const { return queues_; }

  // Returns the sequence with the smallest rank by the policy, leaving out the first skip[c] of every class
  // c; a background sequence only when there is no other. Null: none.
  Sequence* best(const Policy& policy, double now, std::span<const size_t> skip) const;
  // State of the queue for the policy, without n_running.
  QueueState state(const Policy& policy, double now) const;

 private:
  Queues queues_;
  int n_ = 0;
};

}  // namespace penstock
