// Kernels that measure one limit of the device each.
#pragma once
#include <cstdint>

#include "ops/cuda/kernels/launch.h"

namespace penstock::cuda {

struct alignas(16) FourWords {
  uint32_t w[4];
};

// Reads n pieces of 16 bytes; every thread stores the xor of the words that it read.
struct ReadMemory {
  static constexpr int kThreads = 512;
  const FourWords* from;
  int64_t n;
  uint32_t* out;  // [Grid::x * kThreads]
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

struct CopyMemory {
  static constexpr int kThreads = 512;
  const FourWords* from;
  int64_t n;
  FourWords* to;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

enum class Operand : uint8_t { kBF16, kF8, kInt8 };

// Every warp multiplies fragments in registers n times, kAtOnce independent ones each; every thread
// stores the sum of its results. Zeros for F8 if the device lacks it (before compute capability
// 8.9).
template <Operand kOperand>
struct MultiplyInRegisters {
  static constexpr int kThreads = 256, kAtOnce = 8;
  static constexpr int kDepth = kOperand == Operand::kBF16 ? 16 : 32;
  int n;
  float* out;  // [Grid::x * kThreads]
  static constexpr double operations(int blocks, int n) {
    return 2.0 * 16 * 8 * kDepth * kAtOnce * n * blocks * (kThreads / 32);
  }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

struct DoNothing {
  static constexpr int kThreads = 32;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
