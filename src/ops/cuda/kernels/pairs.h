// Arithmetic of two 16-bit numbers in a word.
#pragma once
#include "ops/cuda/kernels/thread.h"
#include "ops/cuda/kernels/warpgroup.h"

namespace penstock::cuda {

// Sums and products of two FP16, and products of two BF16, in a word each.
PENSTOCK_DEVICE uint32_t add_half_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDACC__)
  uint32_t sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
#else
  const auto add = [](uint32_t x, uint32_t y) {
    return uint32_t{float_to_half(half_to_float(static_cast<uint16_t>(x)) +
                                  half_to_float(static_cast<uint16_t>(y)))};
  };
  return add(a, b) | add(a >> 16, b >> 16) << 16;
#endif
}
PENSTOCK_DEVICE uint32_t multiply_half_pairs(uint32_t a, uint32_t b) {
#if defined(__CUDACC__)
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
#else
  const auto multiply = [](uint32_t x, uint32_t y) {
    return uint32_t{float_to_half(half_to_float(static_cast<uint16_t>(x)) *
                                  half_to_float(static_cast<uint16_t>(y)))};
  };
  return multiply(a, b) | multiply(a >> 16, b >> 16) << 16;
#endif
}
// Compute capability 8.x has no product without a sum; -0 changes none.
PENSTOCK_DEVICE uint32_t multiply_bf16_pairs(uint32_t a, uint32_t b) {
  return multiply_add_bf16_pairs(a, b, 0x80008000u);
}
// a * b + c, rounded once.
PENSTOCK_DEVICE uint32_t multiply_add_half_pairs(uint32_t a, uint32_t b, uint32_t c) {
#if defined(__CUDACC__)
  uint32_t sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
#else
  const auto half = [](uint32_t x) { return half_to_float(static_cast<uint16_t>(x)); };
  const auto add = [&](uint32_t x, uint32_t y, uint32_t z) {
    return uint32_t{float_to_half(half(x) * half(y) + half(z))};
  };
  return add(a, b, c) | add(a >> 16, b >> 16, c >> 16) << 16;
#endif
}

}  // namespace penstock::cuda
