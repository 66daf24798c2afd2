// The primitives of kernels/thread.h on fibers.
#pragma once
#include <algorithm>
#include <bit>

#include "base/half.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

inline void Thread::sync() const {
  fibers->meet_block(index, nullptr, [](void* const*, int) {});
}
inline void Thread::sync_warp() const {
  fibers->meet_warp(index, nullptr, [](void* const*, int) {});
}

template <class T>
T Thread::shuffle(T value, int from_lane) const {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  struct Mine {
    T value;
    int from;
    T got;
  } mine{value, from_lane, value};
  fibers->meet_warp(index, &mine, [](void* const* all, int) {
    for (int lane = 0; lane < kWarp; ++lane) {
      auto* const to = static_cast<Mine*>(all[lane]);
      to->got = static_cast<const Mine*>(all[to->from % kWarp])->value;
    }
  });
  return mine.got;
}

inline uint32_t Thread::vote(bool flag) const {
  uint32_t votes = flag ? 1 : 0;
  fibers->meet_warp(index, &votes, [](void* const* all, int) {
    uint32_t together = 0;
    for (int lane = 0; lane < kWarp; ++lane)
      together |= *static_cast<const uint32_t*>(all[lane]) << lane;
    for (int lane = 0; lane < kWarp; ++lane) *static_cast<uint32_t*>(all[lane]) = together;
  });
  return votes;
}

// In one meeting instead of five: fibers that switch are most of what norms cost.
template <class T, class Combine>
T Thread::reduce(T value, Combine) const {
  fibers->meet_warp(index, &value, [](void* const* all, int) {
    T values[kWarp], before[kWarp];
    for (int lane = 0; lane < kWarp; ++lane) values[lane] = *static_cast<const T*>(all[lane]);
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      std::copy_n(values, kWarp, before);
      for (int lane = 0; lane < kWarp; ++lane)
        values[lane] = Combine()(before[lane], before[lane ^ mask]);
    }
    for (int lane = 0; lane < kWarp; ++lane) *static_cast<T*>(all[lane]) = values[lane];
  });
  return value;
}

namespace emulation {
struct MmaLane {
  float* d;
  const uint32_t *a, *b;
};
void mma_together(void* const* lanes, int n);  // MmaLane
struct Int8Lane {
  int* d;
  const uint32_t *a, *b;
};
void mma_int8_together(void* const* lanes, int n);  // Int8Lane
void mma_f8_together(void* const* lanes, int n);    // MmaLane
void mma_half_together(void* const* lanes, int n);  // MmaLane
struct MatrixLane {
  const std::byte* row;
  uint32_t* to;  // [4]
};
void load_together(void* const* lanes, int n);             // MatrixLane
void load_transposed_together(void* const* lanes, int n);  // MatrixLane
void transpose_together(void* const* lanes, int n);        // uint32_t
}  // namespace emulation

inline void Thread::mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
  emulation::MmaLane mine{d, a, b};
  fibers->meet_warp(index, &mine, emulation::mma_together);
}

inline void Thread::mma_int8(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
  emulation::Int8Lane mine{d, a, b};
  fibers->meet_warp(index, &mine, emulation::mma_int8_together);
}
inline void Thread::mma_f8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
  emulation::MmaLane mine{d, a, b};
  fibers->meet_warp(index, &mine, emulation::mma_f8_together);
}

inline void Thread::mma_half(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
  emulation::MmaLane mine{d, a, b};
  fibers->meet_warp(index, &mine, emulation::mma_half_together);
}
inline void Thread::load_matrices(uint32_t (&to)[4], const std::byte* row) const {
  emulation::MatrixLane mine{row, to};
  fibers->meet_warp(index, &mine, emulation::load_together);
}
inline void Thread::load_transposed(uint32_t (&to)[4], const std::byte* row) const {
  emulation::MatrixLane mine{row, to};
  fibers->meet_warp(index, &mine, emulation::load_transposed_together);
}
inline uint32_t Thread::transposed(uint32_t pair) const {
  fibers->meet_warp(index, &pair, emulation::transpose_together);
  return pair;
}

inline void Thread::copy_ahead(std::byte* shared_to, const std::byte* from) const {
  fibers->copy_later(index, shared_to, from);
}
inline void Thread::copy_ahead(std::byte* shared_to, const std::byte* from, bool has) const {
  alignas(16) static constexpr std::byte kZeros[16] = {};
  fibers->copy_later(index, shared_to, has ? from : kZeros);
}
inline void Thread::end_copies() const { fibers->end_copies(index); }
template <int kMost>
void Thread::wait_for_copies() const {
  fibers->make_copies(index, kMost);
}

inline void Thread::prefetch(const std::byte* at) const {
  (void)*static_cast<const volatile std::byte*>(at);  // it is there
}

inline int atomic_add(int* to, int value) {  // one thread at a time
  const int before = *to;
  *to += value;
  return before;
}

inline int count_bits(uint32_t bits) { return std::popcount(bits); }

inline float float_of_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline uint32_t bits_of_float(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline uint32_t bf16_pair(float low, float high) {
  return float_to_bf16(low) | static_cast<uint32_t>(float_to_bf16(high)) << 16;
}
inline uint32_t half_pair(float low, float high) {
  return float_to_half(low) | static_cast<uint32_t>(float_to_half(high)) << 16;
}
inline float exp2_near(float x) { return exp2f(x); }
inline uint32_t add_bf16_pairs(uint32_t a, uint32_t b) {
  const auto add = [](uint32_t x, uint32_t y) {
    return uint32_t{float_to_bf16(float_of_bits(x << 16) + float_of_bits(y << 16))};
  };
  return add(a & 0xffffu, b & 0xffffu) | add(a >> 16, b >> 16) << 16;
}
inline float half_to_float(uint16_t bits) { return to_float(Half{bits}); }
inline uint16_t float_to_half(float x) { return to_half(x).bits; }

}  // namespace penstock::cuda
