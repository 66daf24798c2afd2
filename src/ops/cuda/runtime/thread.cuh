// The primitives of kernels/thread.h on a GPU.
#pragma once
#include <cuda_fp16.h>

#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

PENSTOCK_DEVICE void Thread::sync() const { __syncthreads(); }
PENSTOCK_DEVICE void Thread::sync_warp() const { __syncwarp(); }

template <class T>
PENSTOCK_DEVICE T Thread::shuffle(T value, int from_lane) const {
  return __shfl_sync(0xffffffffu, value, from_lane);
}

PENSTOCK_DEVICE uint32_t Thread::vote(bool flag) const {
  return __ballot_sync(0xffffffffu, flag ? 1 : 0);
}

template <class T, class Combine>
PENSTOCK_DEVICE T Thread::reduce(T value, Combine combine) const {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
  return value;
}

PENSTOCK_DEVICE void Thread::mma(float (&d)[4], const uint32_t (&a)[4],
                                 const uint32_t (&b)[2]) const {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

PENSTOCK_DEVICE void Thread::mma_int8(int (&d)[4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[2]) const {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

PENSTOCK_DEVICE void Thread::mma_f8(float (&d)[4], const uint32_t (&a)[4],
                                    const uint32_t (&b)[2]) const {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

PENSTOCK_DEVICE void Thread::mma_half(float (&d)[4], const uint32_t (&a)[4],
                                      const uint32_t (&b)[2]) const {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
PENSTOCK_DEVICE void Thread::load_matrices(uint32_t (&to)[4], const std::byte* row) const {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
PENSTOCK_DEVICE void Thread::load_transposed(uint32_t (&to)[4], const std::byte* row) const {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
PENSTOCK_DEVICE uint32_t Thread::transposed(uint32_t pair) const {
  uint32_t got;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(got) : "r"(pair));
  return got;
}

PENSTOCK_DEVICE void Thread::copy_ahead(std::byte* shared_to, const std::byte* from) const {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared_to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
PENSTOCK_DEVICE void Thread::copy_ahead(std::byte* shared_to, const std::byte* from,
                                        bool has) const {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared_to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(has ? 16 : 0)
               : "memory");
}
PENSTOCK_DEVICE void Thread::end_copies() const {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kMost>
PENSTOCK_DEVICE void Thread::wait_for_copies() const {
  asm volatile("cp.async.wait_group %0;" ::"n"(kMost) : "memory");
}

PENSTOCK_DEVICE void Thread::prefetch(const std::byte* at) const {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

PENSTOCK_DEVICE int atomic_add(int* to, int value) { return atomicAdd(to, value); }
PENSTOCK_DEVICE int count_bits(uint32_t bits) { return __popc(bits); }

PENSTOCK_DEVICE float float_of_bits(uint32_t bits) { return __uint_as_float(bits); }
PENSTOCK_DEVICE uint32_t bits_of_float(float x) { return __float_as_uint(x); }
PENSTOCK_DEVICE uint32_t bf16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
PENSTOCK_DEVICE uint32_t half_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
PENSTOCK_DEVICE float exp2_near(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
PENSTOCK_DEVICE uint32_t add_bf16_pairs(uint32_t a, uint32_t b) {
  uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3f803f80u), "r"(b));
  return sum;
}
PENSTOCK_DEVICE float half_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
PENSTOCK_DEVICE uint16_t float_to_half(float x) { return __half_as_ushort(__float2half_rn(x)); }

}  // namespace penstock::cuda
