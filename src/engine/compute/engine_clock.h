// The engine's clock: seconds since the clock was made.
#pragma once
#include <chrono>

#include "penstock/engine.h"

namespace penstock {

class EngineClock {
 public:
  double now() const { return std::chrono::duration<double>(Clock::now() - epoch_).count(); }

 private:
  Clock::time_point epoch_ = Clock::now();
};

}  // namespace penstock
