// The waiting sequences, by priority, with fair turns between tenants.
//
// Start-time fair queueing: an arriving sequence gets the turn after its tenant's last one, but at
// least that of the first waiting sequence that has not run, or, if none waits, the turn after the
// latest that began to run. Sequences are ordered by turn, then by arrival. So sequences of one
// tenant (or without a tenant) keep the order of arrival, and a sequence that arrives behind many
// of another tenant waits for one of them.
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
  // Returns the entry of its tenant in next_, added if missing. Throws std::bad_alloc and then
  // changes nothing.
  uint64_t& next_of(const Sequence& sequence);
  // REQUIRES: the sequence is in the queue.
  void erase(Sequence& sequence);

  const bool by_priority_;
  Queues queues_;
  // largest turn of sequences that began to run, by queue
  std::array<uint64_t, kNumClasses> latest_{};
  // Next turn of each tenant, by queue. Missing entries, and those below first_turn(), mean
  // first_turn().
  std::array<std::map<uint64_t, uint64_t>, kNumClasses> next_;
  int n_ = 0;
};

}  // namespace penstock
