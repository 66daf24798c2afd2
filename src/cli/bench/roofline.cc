#include "cli/bench/roofline.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

void LimitWatch::read_as(const EngineInfo& info) {
  if (!ops_) return;
  const int64_t room = std::max(ops_->memory().free / 4, int64_t{8} << 20);
  bytes_ = std::min({info.active_weight_bytes, int64_t{512} << 20, room});
}

void LimitWatch::sample() {
  if (ops_) best_ = better(best_, ops_->limits(bytes_));
}

std::vector<ThreadLimit> LimitWatch::of_threads() const {
  constexpr int kSamples = 4;
  if (!ops_ || !ops_->computes_here()) return {};
  return sample_threads(ops_->n_host_threads(), kSamples);
}

double token_limit(const MachineLimits& limits, const TokenOperations& token, double bytes) {
  if (limits.read_bytes_per_second <= 0) return 0;
  const double computed = prefill_limit(limits, token);
  const double read = bytes > 0 ? limits.read_bytes_per_second / bytes : computed;
  return computed > 0 ? std::min(computed, read) : 0;
}

void print_limits(const MachineLimits& limits, const std::vector<ThreadLimit>& threads) {
  if (limits.floats.operations_per_second <= 0) return;
  fmt::print("limits, best of the samples between the tests: {:.1f} GB/s read, {:.0f} Gop/s {}",
             limits.read_bytes_per_second / 1e9, limits.floats.operations_per_second / 1e9,
             limits.floats.unit);
  if (limits.integers.unit != limits.floats.unit)
    fmt::print(", {:.0f} Gop/s {}", limits.integers.operations_per_second / 1e9,
               limits.integers.unit);
  fmt::print("\n");
  for (const ThreadLimit& limit : threads) {
    fmt::print("  {:20} {:8.1f} G/s by all threads, {:8.1f} by one: {:.2f} times\n", limit.name,
               limit.all / 1e9, limit.one / 1e9, limit.one > 0 ? limit.all / limit.one : 0);
  }
}

void print_limits(const UnpackingRates& rates) {
  if (rates.chosen.empty()) return;
  fmt::print(
      "  weights are unpacked {} products of tiles: {:.0f} Gop/s of a thread before them, {:.0f} "
      "between them\n",
      rates.chosen, rates.before / 1e9, rates.between / 1e9);
}

void print_limits(const DeviceLimits& limits) {
  for (const DeviceLimit& limit : limits.all)
    fmt::print("  {:24} {:10.1f} {}\n", limit.name, limit.value, limit.unit);
  if (limits.emulated) fmt::print("an emulated device: its rates mean nothing\n");
}

}  // namespace penstock
