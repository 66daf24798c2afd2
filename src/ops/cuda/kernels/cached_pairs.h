// Numbers of the cache as products of 16-bit numbers take them.
#pragma once
#include "ops/cuda/kernels/attend_parts.h"
#include "ops/cuda/kernels/flash_parts.h"

namespace penstock::cuda {

// Numbers `at` and at + 1 of a cached row of n, without its scale.
template <KvCode kCode>
PENSTOCK_DEVICE uint32_t pair_of(KvCode code, const std::byte* row, int at, int n) {
  if (code == kCode && n % 2 == 0) return reinterpret_cast<const uint32_t*>(row)[at / 2];
  const float second = at + 1 < n ? number_at(code, row, at + 1) : 0.0f;
  return Halves<kCode>::pair(number_at(code, row, at), second);
}

// Bytes between rows of n numbers in shared memory: whole steps of 16, and 16 bytes more, so that rows
// begin in different banks.
PENSTOCK_DEVICE constexpr int padded_row_bytes(int n) { return (n + 15) / 16 * 32 + 16; }

// Splits a row of up to 2 * kWarp * kPairs numbers, times a power of two, into two rows of 16-bit
// numbers, by a warp. from: null = zeros. Returns the factor of its products.
template <KvCode kCode, int kPairs>
PENSTOCK_DEVICE float split_row(const Thread& t, const float* from, int n, std::byte* high,
                                std::byte* low) {
  float values[kPairs][2], largest = 0.0f;
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int at = 2 * (p * kWarp + t.lane()) + e;
      values[p][e] = from != nullptr && at < n ? from[at] : 0.0f;
      largest = fmaxf(largest, fabsf(values[p][e]));
    }
  }
  const PowerOfTwo unit = unit_of(warp_max(t, largest));
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const int pair = p * kWarp + t.lane();
    if (pair >= (n + 15) / 16 * 8) continue;
    const SplitPair split =
        Halves<kCode>::split(values[p][0] * unit.down, values[p][1] * unit.down);
    reinterpret_cast<uint32_t*>(high)[pair] = split.hi;
    reinterpret_cast<uint32_t*>(low)[pair] = split.lo;
  }
  return unit.up;
}

}  // namespace penstock::cuda
