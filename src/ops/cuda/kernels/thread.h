// The primitives of kernels: indices of a thread, and collective operations of warps and blocks.
// nvcc compiles them to instructions of the GPU; with g++ threads are fibers that meet at each of
// these calls (tests/emulation/cuda/fibers.h).
//
// REQUIRES: all 32 lanes of a warp make the same calls of shuffle and mma, and all threads of a
// block the same calls of sync. The emulation reports threads that return while others wait for
// them. Threads without work continue with zeros instead.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/cuda/kernels/launch.h"

#if !defined(__CUDACC__)
#include <cmath>
#include <cstring>

#include "emulation/cuda/fibers.h"
#endif

namespace penstock::cuda {

inline constexpr int kWarp = 32;

struct Thread {
  int index;  // in the block
  int x, y;   // of the block in the grid
  int n_x;    // Grid::x
  // Grid::shared_bytes of the block, 128-byte aligned
  std::byte* shared;

  PENSTOCK_DEVICE int lane() const { return index % kWarp; }
  PENSTOCK_DEVICE int warp() const { return index / kWarp; }
  template <class T>
  PENSTOCK_DEVICE T* shared_as(size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(shared + offset_bytes);
  }

  // Barrier of the block; makes earlier writes of all its threads visible.
  PENSTOCK_DEVICE void sync() const;
  // Barrier of the warp; makes earlier writes of its lanes to shared memory visible.
  PENSTOCK_DEVICE void sync_warp() const;
  // Returns the value of another lane (4 or 8 bytes).
  template <class T>
  PENSTOCK_DEVICE T shuffle(T value, int from_lane) const;
  template <class T>
  PENSTOCK_DEVICE T shuffle_xor(T value, int mask) const {
    return shuffle(value, lane() ^ mask);
  }
  // Returns the lanes whose flag is set: bit i is lane i.
  PENSTOCK_DEVICE uint32_t vote(bool flag) const;
  // Reduces the lanes' values: value = combine(value, that of lane ^ mask) for masks 16, 8, …,
  // 1.
  template <class T, class Combine>
  PENSTOCK_DEVICE T reduce(T value, Combine combine) const;
  // d += a b in F32, with BF16 a [16, 16] and b [16, 8], as fragments of mma.m16n8k16. With g =
  // lane / 4 and t = lane % 4: a[i] is row g + 8 (i & 1), columns 8 (i >> 1) + 2t and + 1; b[i] is
  // rows 8i + 2t and + 1 of column g; d[i] is row g + 8 (i >> 1), column 2t + (i & 1). The lower
  // half of a word is the first element.
  PENSTOCK_DEVICE void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const;
  // As mma(), with a [16, 32] and b [32, 8] of bytes, four in a word: a[i] is columns 16 (i >> 1) +
  // 4t to + 3, b[i] is rows 16 i + 4t to + 3. Signed integers, or F8 E4M3 (without effect before
  // compute capability 8.9).
  PENSTOCK_DEVICE void mma_int8(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const;
  PENSTOCK_DEVICE void mma_f8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const;
  // As mma(), with FP16.
  PENSTOCK_DEVICE void mma_half(float (&d)[4], const uint32_t (&a)[4],
                                const uint32_t (&b)[2]) const;
  // Loads four matrices [8, 8] of 16 bits from shared memory. Lane l passes the address of row l %
  // 8 of matrix l / 8 (16 bytes, aligned) and gets of matrix i, in to[i], row lane / 4, columns 2
  // (lane % 4) and + 1; transposed: column lane / 4, rows 2 (lane % 4) and + 1.
  PENSTOCK_DEVICE void load_matrices(uint32_t (&to)[4], const std::byte* row) const;
  PENSTOCK_DEVICE void load_transposed(uint32_t (&to)[4], const std::byte* row) const;
  // Transposes one such matrix that is distributed over the lanes.
  PENSTOCK_DEVICE uint32_t transposed(uint32_t pair) const;
  // Copies 16 aligned bytes to shared memory asynchronously. Copies up to end_copies() are a
  // group.
  PENSTOCK_DEVICE void copy_ahead(std::byte* shared_to, const std::byte* from) const;
  // Copies 16 bytes; zeros unless `has`. `from` must be readable in any case.
  PENSTOCK_DEVICE void copy_ahead(std::byte* shared_to, const std::byte* from, bool has) const;
  PENSTOCK_DEVICE void end_copies() const;
  // Waits for all but the last kMost groups of this thread; other threads need a sync after it.
  template <int kMost>
  PENSTOCK_DEVICE void wait_for_copies() const;
  // Prefetches the 128 bytes at `at` to the L2 cache.
  PENSTOCK_DEVICE void prefetch(const std::byte* at) const;

#if !defined(__CUDACC__)
  Fibers* fibers;
#endif
};

PENSTOCK_DEVICE int atomic_add(int* to, int value);
PENSTOCK_DEVICE int count_bits(uint32_t bits);

// --- Called by all lanes of a warp; all get the result. The order of additions is fixed.

struct Add {
  template <class T>
  PENSTOCK_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
struct Greater {
  template <class T>
  PENSTOCK_DEVICE T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

template <class T>
PENSTOCK_DEVICE T warp_sum(const Thread& t, T value) {
  return t.reduce(value, Add());
}
template <class T>
PENSTOCK_DEVICE T warp_max(const Thread& t, T value) {
  return t.reduce(value, Greater());
}

// --- Called by all threads of a block of kThreads (whole warps, or one thread). scratch: kThreads
// / 32 values in shared memory, reusable when this returns.

template <int kThreads, class T>
PENSTOCK_DEVICE T block_sum(const Thread& t, T value, T* scratch) {
  if constexpr (kThreads == 1) return value;
  value = warp_sum(t, value);
  if (t.lane() == 0) scratch[t.warp()] = value;
  t.sync();
  T sum = scratch[0];
  for (int w = 1; w < kThreads / kWarp; ++w) sum += scratch[w];
  t.sync();
  return sum;
}
template <int kThreads, class T>
PENSTOCK_DEVICE T block_max(const Thread& t, T value, T* scratch) {
  if constexpr (kThreads == 1) return value;
  value = warp_max(t, value);
  if (t.lane() == 0) scratch[t.warp()] = value;
  t.sync();
  T most = scratch[0];
  for (int w = 1; w < kThreads / kWarp; ++w) most = scratch[w] > most ? scratch[w] : most;
  t.sync();
  return most;
}

// --- Conversions of numbers.

PENSTOCK_DEVICE float float_of_bits(uint32_t bits);
PENSTOCK_DEVICE uint32_t bits_of_float(float x);

PENSTOCK_DEVICE float bf16_to_float(uint16_t bits) {
  return float_of_bits(static_cast<uint32_t>(bits) << 16);
}
// Rounds to nearest, ties to even.
PENSTOCK_DEVICE uint16_t float_to_bf16(float x) {
  const uint32_t bits = bits_of_float(x);
  // NaN
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
// Sums of two BF16 in a word each.
PENSTOCK_DEVICE uint32_t add_bf16_pairs(uint32_t a, uint32_t b);
PENSTOCK_DEVICE float half_to_float(uint16_t bits);
PENSTOCK_DEVICE uint16_t float_to_half(float x);  // to nearest, ties to even

// Returns FP8 E4M3, to nearest, ties to even, saturated at 448. REQUIRES: x is not NaN.
PENSTOCK_DEVICE uint8_t float_to_f8(float x) {
  const uint32_t bits = bits_of_float(x), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  constexpr uint32_t kLeastNormal = 0x3c800000u;  // 2^-6
  uint32_t code;
  if (magnitude < kLeastNormal) {  // a multiple of 2^-9, rounded by an addition
    code = bits_of_float(float_of_bits(magnitude) + 16384.0f) - bits_of_float(16384.0f);
  } else {
    code = ((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3);
  }
  return static_cast<uint8_t>(sign | (code < 0x7eu ? code : 0x7eu));
}
PENSTOCK_DEVICE float f8_to_float(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu, sign = (code & 0x80u) << 24;
  const float x = magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9f
                                : float_of_bits((magnitude << 20) + (120u << 23));
  return float_of_bits(bits_of_float(x) | sign);
}

PENSTOCK_DEVICE uint32_t bf16_pair(float low, float high);  // rounded as float_to_bf16()

PENSTOCK_DEVICE uint32_t half_pair(float low, float high);  // rounded as float_to_half()
// Returns 2^x to about two ulps; results below 2^-126 may be 0.
PENSTOCK_DEVICE float exp2_near(float x);

// Two BF16 in a word, and their rounding errors: hi + lo has 16 bits of mantissa.
struct SplitPair {
  uint32_t hi, lo;
};
PENSTOCK_DEVICE SplitPair split_pair(float first, float second) {
  const uint32_t hi = bf16_pair(first, second);
  return {hi, bf16_pair(first - float_of_bits(hi << 16), second - float_of_bits(hi & 0xffff0000u))};
}

}  // namespace penstock::cuda

#if defined(__CUDACC__)
#include "ops/cuda/runtime/start.cuh"
#include "ops/cuda/runtime/thread.cuh"
#else
#include "emulation/cuda/start.h"
#include "emulation/cuda/thread.h"
#endif
