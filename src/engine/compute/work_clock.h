// A clock for what a step costs, as against how long it took.
#pragma once
#include <ctime>

namespace penstock {

// Where the engine's thread computes too, its own processor time: on a busy machine the wall clock tells what
// the others do. Else (a device computes) wall time. Seconds from an arbitrary begin; one thread.
class WorkClock {
 public:
  explicit WorkClock(bool computes_here) : id_(computes_here ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC) {}
  double now() const {
    timespec time{};
    clock_gettime(id_, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

 private:
  clockid_t id_;
};

}  // namespace penstock
