// What kernel bodies are written in: who a thread is, and what the threads of a warp or of a block
// do together. Instructions of the GPU under nvcc; under g++ the threads are fibers that meet at
// each of these calls (tests/emulation/cuda/fibers.h).
//
// All 32 lanes of a warp make the same calls of shuffle and mma, all threads of a block the same
// calls of sync. A thread that returns early while others wait for it is an error that the
// emulation finds. Threads that may have nothing to do go on with zeros instead.
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
  int index;  // in its block
  int x, y;   // the block in the grid
  int n_x;    // Grid::x
  // Grid::shared_bytes of the block, 128-byte aligned
  std::byte* shared;

  PENSTOCK_DEVICE int lane() const { return index % kWarp; }
  PENSTOCK_DEVICE int warp() const { return index / kWarp; }
  template <class T>
  PENSTOCK_DEVICE T* shared_as(size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(shared + offset_bytes);
  }

  // All threads of the block are here, and see what the others wrote.
  PENSTOCK_DEVICE void sync() const;
  // The lanes of the warp are here, and see what the others wrote into shared memory.
  PENSTOCK_DEVICE void sync_warp() const;
  // The value of another lane (4 or 8 bytes).
  template <class T>
  PENSTOCK_DEVICE T shuffle(T value, int from_lane) const;
  template <class T>
  PENSTOCK_DEVICE T shuffle_xor(T value, int mask) const {
    return shuffle(value, lane() ^ mask);
  }
  // What the lanes' values are together: value = combine(value, that of lane ^ mask) for each mask
  // from 16 down to 1.
  template <class T, class Combine>
  PENSTOCK_DEVICE T reduce(T value, Combine combine) const;
  // d += a b in F32 with BF16 a [16, 16] and b [16, 8], in the fragments of mma.m16n8k16: with g =
  // lane / 4 and t = lane % 4, a[i] has row g + 8 (i & 1), columns 8 (i >> 1) + 2t and + 1; b[i]
  // rows 8i + 2t and + 1 of column g; d[i] is row g + 8 (i >> 1), column 2t + (i & 1). The lower
  // half of a word comes first.
  PENSTOCK_DEVICE void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const;
  // The same with a [16, 32] and b [32, 8] of four bytes in a word: a[i] has the columns 16 (i >>
  // 1) + 4t to + 3, b[i] the rows 16 i + 4t to + 3. Signed integers, or F8 E4M3, which compute
  // capability 8.0 does not have: d stays as it is.
  PENSTOCK_DEVICE void mma_int8(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const;
  PENSTOCK_DEVICE void mma_f8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const;
  // As mma(), of FP16.
  PENSTOCK_DEVICE void mma_half(float (&d)[4], const uint32_t (&a)[4],
                                const uint32_t (&b)[2]) const;
  // Four matrices [8, 8] of 16 bits from shared memory: lane l says where the row l % 8 of matrix l
  // / 8 is (16 bytes, aligned so), and gets of matrix i, in to[i], row lane / 4, columns 2 (lane %
  // 4) and + 1; transposed: column lane / 4, rows 2 (lane % 4) and + 1.
  PENSTOCK_DEVICE void load_matrices(uint32_t (&to)[4], const std::byte* row) const;
  PENSTOCK_DEVICE void load_transposed(uint32_t (&to)[4], const std::byte* row) const;
  // Of one such matrix in the lanes' registers, laid out so, its transpose.
  PENSTOCK_DEVICE uint32_t transposed(uint32_t pair) const;
  // 16 bytes, aligned so on both sides, on their way to shared memory while the thread goes on;
  // those up to end_copies() are a group.
  PENSTOCK_DEVICE void copy_ahead(std::byte* shared_to, const std::byte* from) const;
  // Or, without `has`, 16 bytes of zeros; from: some place that could be read.
  PENSTOCK_DEVICE void copy_ahead(std::byte* shared_to, const std::byte* from, bool has) const;
  PENSTOCK_DEVICE void end_copies() const;
  // The thread's groups but the last kMost are there. For others behind a sync.
  template <int kMost>
  PENSTOCK_DEVICE void wait_for_copies() const;
  // Asks for the 128 bytes around `at` to be brought into the cache that all share.
  PENSTOCK_DEVICE void prefetch(const std::byte* at) const;

#if !defined(__CUDACC__)
  Fibers* fibers;
#endif
};

PENSTOCK_DEVICE int atomic_add(int* to, int value);

// --- By all lanes of a warp: every one gets the result. The order of the additions is fixed.

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

// --- By all threads of a block of kThreads (whole warps, or one thread). scratch: kThreads / 32
//   values in shared memory, free again when this returns.

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

// --- Numbers.

PENSTOCK_DEVICE float float_of_bits(uint32_t bits);
PENSTOCK_DEVICE uint32_t bits_of_float(float x);

PENSTOCK_DEVICE float bf16_to_float(uint16_t bits) {
  return float_of_bits(static_cast<uint32_t>(bits) << 16);
}
// Rounded to nearest, ties to even.
PENSTOCK_DEVICE uint16_t float_to_bf16(float x) {
  const uint32_t bits = bits_of_float(x);
  // not a number
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
// Of two BF16 in a word each.
PENSTOCK_DEVICE uint32_t add_bf16_pairs(uint32_t a, uint32_t b);
PENSTOCK_DEVICE float half_to_float(uint16_t bits);
PENSTOCK_DEVICE uint16_t float_to_half(float x);  // to nearest, ties to even

// FP8 E4M3 of what is a number: to nearest, ties to even, at most 448.
PENSTOCK_DEVICE uint8_t float_to_f8(float x) {
  const uint32_t bits = bits_of_float(x), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  constexpr uint32_t kLeastNormal = 0x3c800000u;  // 2^-6
  uint32_t code;
  if (magnitude < kLeastNormal) {  // a multiple of 2^-9: the sum has the multiple in its last bits
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
// 2^x to about two ulps; less than 2^-126 may be 0
PENSTOCK_DEVICE float exp2_near(float x);

// Two BF16 in a word, and what rounding left of both: hi + lo has 16 bits of a mantissa.
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
