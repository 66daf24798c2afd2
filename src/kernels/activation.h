// The nonlinearities of feed-forward layers.
#pragma once
#include <cstdint>

namespace penstock {

enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu, kRelu2 };
inline constexpr int kNumActivations = 5;

}  // namespace penstock
