// The waiting sequences, by priority and in turns between tenants.
//
// Start-time fair queueing: every sequence gets a turn when it comes, the one after its tenant's
// last, at least that of the first sequence that waits and has not run, or where none waits, the
// one after the latest that began to run. Sequences are in the order of their turns, and of equal
// turns, of arrival. The sequences of one tenant, or of nobody, thus keep the order of arrival, and
// whoever waits behind many sequences of another tenant waits for one of them.
//
// Engine thread only.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <span>

#include "engine/schedule/policies.h"
#include "engine/schedule/sequence.h"

namespace penstock {

class WaitingQueue {
 public:
  static constexpr int kNumClasses = 4, kBackground = static_cast<int>(Priority::kBackground);
  using Queues = std::array<std::deque<Sequence*>, kNumClasses>;
  // by_priority: each priority has a queue of its own. False: one queue, and one of those in the
  // background.
  explicit WaitingQueue(bool by_priority = true) : by_priority_(by_priority) {}

  // The priority of a sequence, [0, kNumClasses).
  static int class_of(const Sequence& sequence) {
    return std::min(static_cast<int>(sequence.priority), kNumClasses - 1);
  }
  // The queue that it waits in, [0, kNumClasses).
  int queue_of(const Sequence& sequence) const {
    const int its_class = class_of(sequence);
    return by_priority_ || its_class == kBackground ? its_class : 0;
  }

  // Throws std::bad_alloc and then changes nothing. A sequence that has a turn keeps it.
  void add(Sequence& sequence);
  // Takes out one that begins to run. REQUIRES: the sequence is in the queue.
  void take(Sequence& sequence);
  // Takes out one that ends. REQUIRES: the sequence is in the queue.
  void remove(Sequence& sequence);
  int size() const { return n_; }
  int n_background() const { return static_cast<int>(queues_[kBackground].size()); }
  const Queues& queues() const { return queues_; }

  // Returns the sequence with the smallest rank by the policy among the first of the queues,
  // leaving out the first skip[q] of every queue q; a background sequence only when there is no
  // other. Null: none.
  Sequence* best(const Policy& policy, double now, std::span<const size_t> skip) const;
  // State of the queue for the policy, without n_running.
  QueueState state(const Policy& policy, double now) const;

 private:
  // The first turn that a sequence which comes to the queue may get.
  uint64_t first_turn(int queue) const;
  // The entry of its tenant in next_, made where there is none. Throws std::bad_alloc and then
  // changes nothing.
  uint64_t& next_of(const Sequence& sequence);
  // REQUIRES: the sequence is in the queue.
  void erase(Sequence& sequence);

  const bool by_priority_;
  Queues queues_;
  // turn of those that began to run, the largest, by queue
  std::array<uint64_t, kNumClasses> latest_{};
  // By queue and tenant: the turn after its last. Without an entry, or with one below first_turn():
  // that one.
  std::array<std::map<uint64_t, uint64_t>, kNumClasses> next_;
  int n_ = 0;
};

}  // namespace penstock
