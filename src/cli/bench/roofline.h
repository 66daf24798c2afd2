// What the machine can do at most, beside what a test did.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/device_limits.h"
#include "ops/ops.h"
#include "ops/thread_limits.h"
#include "penstock/engine.h"

namespace penstock {

// The best of samples that are taken between what is measured, so that both have the same neighbours.
class LimitWatch {
 public:
  // Null: nothing is measured.
  explicit LimitWatch(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}
  // Reads as much as the model for a token, as far as that fits beside it.
  void read_as(const EngineInfo& info);
  void sample();
  const MachineLimits& best() const { return best_; }
  // What each unit does with one thread and with all.
  std::vector<ThreadLimit> of_threads() const;
  UnpackingRates of_unpacking() const {
    return ops_ && ops_->computes_here() ? sample_unpacking() : UnpackingRates{};
  }
  // What its device does, where it has one.
  DeviceLimits of_device() const { return ops_ ? sample_device(*ops_) : DeviceLimits{}; }

 private:
  std::unique_ptr<Ops> ops_;
  int64_t bytes_ = 0;  // to be read; 0: more than caches hold
  MachineLimits best_;
};

// Tokens per second, at most, when each needs these operations and its share of what is read; 0 where nothing was measured.
double token_limit(const MachineLimits& limits, const TokenOperations& token, double bytes);

void print_limits(const MachineLimits& limits, const std::vector<ThreadLimit>& threads);
void print_limits(const UnpackingRates& rates);
void print_limits(const DeviceLimits& limits);

}  // namespace penstock
