// The waiting sequences, by priority, with fair turns between tenants.
//
// Every sequence gets a turn when it comes (tenant_turns.h). Sequences are in the order of their
// turns, and of equal turns, of arrival: those of one tenant, or of nobody, keep the order of
// arrival.
//
// Engine thread only.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <span>

#include "engine/schedule/policies.h"
#include "engine/schedule/sequence.h"
#include "engine/schedule/tenant_turns.h"

namespace penstock {

class WaitingQueue {
 public:
  static constexpr int kNumClasses = 4, kBackground = static_cast<int>(Priority::kBackground);
  using Queues = std::array<std::deque<Sequence*>, kNumClasses>;
  // by_priority: one queue per priority. False: one queue, and one for background
  // sequences.
  explicit WaitingQueue(bool by_priority = true) : by_priority_(by_priority) {}

  // Returns the sequence's priority class, [0, kNumClasses).
  static int class_of(const Sequence& sequence) {
    return std::min(static_cast<int>(sequence.priority), kNumClasses - 1);
  }
  // Returns the index of its queue, [0, kNumClasses).
  int queue_of(const Sequence& sequence) const {
    const int its_class = class_of(sequence);
    return by_priority_ || its_class == kBackground ? its_class : 0;
  }

  // Adds a sequence; one that has a turn keeps it. Throws std::bad_alloc and then changes nothing.
  void add(Sequence& sequence);
  // Removes a sequence that begins to run. REQUIRES: it is in the queue.
  void take(Sequence& sequence);
  // Removes a sequence that ends. REQUIRES: it is in the queue.
  void remove(Sequence& sequence);
  int size() const { return n_; }
  int n_background() const { return static_cast<int>(queues_[kBackground].size()); }
  const Queues& queues() const { return queues_; }

  // Returns the sequence with the smallest policy rank among the heads of the queues, skipping
  // the first skip[q] of every queue q; a background sequence only if there is no other. Null:
  // none.
  Sequence* best(const Policy& policy, double now, std::span<const size_t> skip) const;
  // State of the queue for the policy, without n_running.
  QueueState state(const Policy& policy, double now) const;

 private:
  // Returns the least turn that a sequence arriving at the queue may get.
  uint64_t first_turn(int queue) const;
  // REQUIRES: the sequence is in the queue.
  void erase(Sequence& sequence);

  const bool by_priority_;
  Queues queues_;
  std::array<TenantTurns, kNumClasses> turns_;  // [queue]
  int n_ = 0;
};

}  // namespace penstock
