// In which order sequences get their turn, and when new ones may join.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/sequence.h"

namespace penstock {

struct PolicyConfig {
  int max_batch_size = 64;         // sequences: static and dynamic
  double max_wait_seconds = 0.05;  // dynamic
  double ageing_seconds = 10;      // priority
};

struct QueueState {
  int n_running = 0;
  int n_waiting = 0;
  double oldest_wait = 0;  // seconds
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Smaller goes first; among equals the earlier arrival. `waited`: seconds since arrival.
  virtual double rank(const Sequence& sequence, double waited) const = 0;
  // How many sequences may be admitted in this step.
  virtual int admissions(const QueueState& queue) const = 0;
  // Whether a waiting sequence may take the place of a running one of higher rank value.
  virtual bool preempts() const { return false; }
};

// A row of THE list in policies.cc: continuous, static, dynamic, priority. Error: kInvalidArgument with the
// names.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicyConfig& config);

}  // namespace penstock
