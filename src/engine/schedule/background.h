// The background priority, which requests cannot ask for: such sequences use the capacity that others leave,
// with any policy.
//
// While other sequences are present, one background sequence at a time goes on. Others that run already pause
// with their blocks; their places and blocks are the first to be taken (preempted).
#pragma once
#include "penstock/engine.h"

namespace penstock {

inline constexpr Priority kBackgroundPriority =
    static_cast<Priority>(static_cast<uint8_t>(Priority::kLow) + 1);

}  // namespace penstock
