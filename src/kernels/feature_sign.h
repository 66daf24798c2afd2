// The fixed signs of KvFormat::kI4's rotation, for CPUs and for the kernels of GPUs.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define PENSTOCK_EVERYWHERE __host__ __device__
#else
#define PENSTOCK_EVERYWHERE
#endif

namespace penstock {

// +1 or -1 for a feature, always the same.
PENSTOCK_EVERYWHERE constexpr float feature_sign(int feature) {
  const uint32_t mixed = (static_cast<uint32_t>(feature) + 1) * 0x9e3779b1u;
  return (mixed ^ mixed >> 15) >> 16 & 1 ? -1.0f : 1.0f;
}

}  // namespace penstock

#undef PENSTOCK_EVERYWHERE
