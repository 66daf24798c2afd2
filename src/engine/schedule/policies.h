// In which order sequences get their turn, and when new ones may join.
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
  int max_batch_size = 64;         // sequences: static and dynamic
  double max_wait_seconds = 0.05;  // dynamic
  int max_batch_tokens = 0;        // of prompts: dynamic; 0 = no limit
  double ageing_seconds = 10;      // priority
};

struct QueueState {
  int n_running = 0;
  int n_waiting = 0;
  double oldest_wait = 0;        // seconds
  int64_t n_waiting_tokens = 0;  // of those that wait, when wants_tokens()
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Smaller goes first; among equals the earlier arrival. `waited`: seconds since arrival.
  virtual double rank(const Sequence& sequence, double waited) const = 0;
  // Before every step that may admit somebody.
  virtual void begin_step(const QueueState&) {}
  virtual bool wants_tokens() const { return false; }
  // Whether a sequence that has not run yet may join those that run.
  virtual bool admits(const Sequence&) const { return true; }
  virtual void note_admitted(const Sequence&) {}
  // Whether prompts are taken in by small parts beside sequences that decode, for the sake of these.
  virtual bool spares_decoding() const { return true; }
  // Whether a waiting sequence may take the place of a running one of higher rank value.
  virtual bool preempts() const { return false; }
};

// A row of THE list in policies.cc. Error: kInvalidArgument with the names.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicyConfig& config);
std::string policy_names();  // "continuous, …"

}  // namespace penstock
