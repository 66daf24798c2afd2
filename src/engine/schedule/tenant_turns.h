// The turns of the tenants in one queue, by start-time fair queueing: what comes gets the turn after
// its tenant's last, at least that of the first that waits and has not run, or where none waits, the
// one after the latest that began to run. Whoever waits behind many of another tenant thus waits
// for one of them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

namespace penstock {

class TenantTurns {
 public:
  // The first turn that what comes may get. waiting: turn of the first that waits and has not run;
  // nullopt: none waits.
  uint64_t first(std::optional<uint64_t> waiting) const {
    return std::min(latest_ + 1, waiting.value_or(latest_ + 1));
  }
  // The turn after the tenant's last, for the caller to raise; below `first`: `first` counts. The
  // entry is made where there is none. Throws std::bad_alloc and then changes nothing.
  uint64_t& next_of(uint64_t tenant, uint64_t first, size_t n_waiting) {
    constexpr size_t kFewTenants = 64;
    if (next_.size() > kFewTenants + n_waiting)
      std::erase_if(next_, [&](const auto& one) { return one.second <= first; });
    return next_[tenant];
  }
  // Something began to run.
  void note_begun(uint64_t turn) { latest_ = std::max(latest_, turn); }
  // The turns of a tenant of whom nothing waits any more are free again.
  void forget(uint64_t tenant) { next_.erase(tenant); }

 private:
  uint64_t latest_ = 0;  // the largest turn of what began to run
  std::map<uint64_t, uint64_t> next_;
};

}  // namespace penstock
