// Scheduling policies: the order in which sequences run, and when waiting ones are admitted.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/schedule/sequence.h"

namespace penstock {

struct PolicyConfig {
  // policies static and dynamic: sequences of a batch
  int max_batch_size = 64;
  // policy dynamic: longest wait for a full batch
  double max_wait_seconds = 0.05;
  // policy dynamic: prompt tokens of a batch; 0 = no limit
  int max_batch_tokens = 0;
  // policy priority: seconds of waiting that raise a request by one priority
  double ageing_seconds = 10;
};

struct QueueState {
  int n_running = 0;
  int n_waiting = 0;
  // Only with Policy::looks_at_waiting():
  double oldest_wait = 0;        // longest wait of a waiting sequence, seconds
  int64_t n_waiting_tokens = 0;  // tokens of the waiting sequences
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Rank of a waiting sequence: of the first of each queue (waiting_queue.h) the one with the
  // smallest is admitted, among equals the earlier arrival. waited: seconds since arrival.
  virtual double rank(const Sequence& sequence, double waited) const = 0;
  // Called before every step that may admit sequences.
  virtual void begin_step(const QueueState&) {}
  // Whether begin_step() reads the fields of QueueState that need a pass over the waiting queue.
  virtual bool looks_at_waiting() const { return false; }
  // Whether a sequence that has not run yet may be admitted.
  virtual bool admits(const Sequence&) const { return true; }
  virtual void note_admitted(const Sequence&) {}
  // Whether prefill is chunked beside decoding sequences, so that these do not wait long for their
  // next token.
  virtual bool spares_decoding() const { return true; }
  // Whether rank() depends on priorities.
  virtual bool ranks_priorities() const { return false; }
  // Whether a waiting sequence may preempt a running one with a larger rank().
  virtual bool preempts() const { return false; }
};

// Makes the policy of this name, a row of THE list in policies.cc. Error: kInvalidArgument, with
// the known names.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicyConfig& config);
std::string policy_names();  // "continuous, …"

}  // namespace penstock
