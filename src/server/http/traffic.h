// Counters of answered requests for the metrics, by route, method and status.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "penstock/metrics.h"

namespace penstock {

inline constexpr double kHttpSecondsBounds[] = {.001, .005, .01, .05, .1, .25, .5,  1,
                                                2.5,  5,    10,  30,  60, 120, 300, 600};

// Thread-safe.
class Traffic {
 public:
  using Key = std::tuple<std::string, std::string, int>;  // path of the route, method, status
  struct Snapshot {
    std::map<Key, uint64_t> requests;
    Histogram seconds{kHttpSecondsBounds};
    uint64_t quota_refusals = 0, unauthorized = 0;
  };

  // status 0: the client left before the answer was complete.
  void note(const std::string& path, const std::string& method, int status, double seconds) {
    const std::scoped_lock lock(mutex_);
    ++data_.requests[{path, method, status}];
    data_.seconds.observe(seconds);
  }
  void note_quota_refusal() {
    const std::scoped_lock lock(mutex_);
    ++data_.quota_refusals;
  }
  void note_unauthorized() {
    const std::scoped_lock lock(mutex_);
    ++data_.unauthorized;
  }
  Snapshot snapshot() const {
    const std::scoped_lock lock(mutex_);
    return data_;
  }

 private:
  mutable std::mutex mutex_;
  Snapshot data_;
};

}  // namespace penstock
