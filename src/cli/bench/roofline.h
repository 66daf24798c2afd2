// The roofline: measured limits of the machine, to compare with the result of a benchmark.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/device_limits.h"
#include "ops/ops.h"
#include "ops/product_plans.h"
#include "ops/thread_limits.h"
#include "penstock/engine.h"

namespace penstock {

// Samples the machine's limits between the runs of a benchmark, under the same conditions, and
// keeps the best.
class LimitWatch {
 public:
  // ops: null: nothing is measured.
  explicit LimitWatch(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}
  // Sets the bytes that a sample reads to what the model reads for a token, as far as memory
  // allows.
  void read_as(const EngineInfo& info);
  void sample();
  const MachineLimits& best() const { return best_; }
  // Returns the limits of each unit with one thread and with all.
  std::vector<ThreadLimit> of_threads() const;
  UnpackingRates of_unpacking() const {
    return ops_ && ops_->computes_here() ? sample_unpacking() : UnpackingRates{};
  }
  // Returns how products are computed, if by this machine's CPU.
  std::vector<ProductPlan> of_products() const {
    return ops_ && ops_->computes_here() ? product_plans() : std::vector<ProductPlan>{};
  }
  // Returns the limits of the device, if there is one.
  DeviceLimits of_device() const { return ops_ ? sample_device(*ops_) : DeviceLimits{}; }

 private:
  std::unique_ptr<Ops> ops_;
  // bytes that a sample reads; 0: more than the caches hold
  int64_t bytes_ = 0;
  MachineLimits best_;
};

// Returns the maximum tokens per second when each token needs these operations and reads `bytes`;
// 0: nothing was measured.
double token_limit(const MachineLimits& limits, const TokenOperations& token, double bytes);

void print_limits(const MachineLimits& limits, const std::vector<ThreadLimit>& threads);
void print_limits(const UnpackingRates& rates);
void print_limits(const DeviceLimits& limits);

}  // namespace penstock
