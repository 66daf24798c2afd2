// A clock that measures the cost of a step, which on a busy machine is less than its duration.
#pragma once
#include <ctime>

namespace penstock {

// CPU time of the engine's thread when that thread computes too, since wall time then includes what
// other processes take; wall time when a device computes. Seconds from an arbitrary start. Used by
// one thread.
class WorkClock {
 public:
  explicit WorkClock(bool computes_here)
      : id_(computes_here ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC) {}
  double now() const {
    timespec time{};
    clock_gettime(id_, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

 private:
  clockid_t id_;
};

}  // namespace penstock
