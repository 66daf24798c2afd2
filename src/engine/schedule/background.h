// A priority beside those that requests may ask for: what runs in the gaps that others leave, whatever the policy.
//
// Beside others one such sequence at a time goes on. Those that run already keep what they have and wait, and their places
// and blocks are the first to be taken.
#pragma once
#include "penstock/engine.h"

namespace penstock {

inline constexpr Priority kBackgroundPriority =
    static_cast<Priority>(static_cast<uint8_t>(Priority::kLow) + 1);

}  // namespace penstock
