// Products of warp groups (kernels/warpgroup.h) by the wgmma instructions of a GPU.
#pragma once
#include "ops/cuda/kernels/warpgroup.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PENSTOCK_WGMMA 1
#endif

namespace penstock::cuda {

#ifdef PENSTOCK_WGMMA

// Matrix descriptor of a tile's part for one step (K-major, 128-byte swizzle): rows of 128 bytes in
// groups of eight, 1,024 bytes apart.
PENSTOCK_DEVICE uint64_t tile_part(const std::byte* tile, int step) {
  const auto at =
      static_cast<uint32_t>(__cvta_generic_to_shared(tile)) + static_cast<uint32_t>(32 * step);
  return (at & 0x3ffffu) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// Matrix descriptor of rows 16 step to 16 step + 15; columns are in tiles `stride` bytes apart.
PENSTOCK_DEVICE uint64_t tile_rows(const std::byte* tile, int step, int stride) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(tile)) +
                  static_cast<uint32_t>(16 * kTileRowBytes * step);
  return (at & 0x3ffffu) >> 4 | uint64_t{static_cast<uint32_t>(stride) >> 4} << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// clang-format off
#define PENSTOCK_SUMS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define PENSTOCK_SUMS_16 PENSTOCK_SUMS_8 \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PENSTOCK_SUMS_32 PENSTOCK_SUMS_16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PENSTOCK_SUMS_64 PENSTOCK_SUMS_32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PENSTOCK_SUMS_128 PENSTOCK_SUMS_64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define PENSTOCK_OF_8(d, i) "+f"(d[i + 0]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define PENSTOCK_OF_16(d, i) PENSTOCK_OF_8(d, i), PENSTOCK_OF_8(d, i + 8)
#define PENSTOCK_OF_32(d, i) PENSTOCK_OF_16(d, i), PENSTOCK_OF_16(d, i + 16)
#define PENSTOCK_OF_64(d, i) PENSTOCK_OF_32(d, i), PENSTOCK_OF_32(d, i + 32)
#define PENSTOCK_OF_128(d, i) PENSTOCK_OF_64(d, i), PENSTOCK_OF_64(d, i + 64)
// M: sums per thread; A0 to A3, B, C: numbers of the asm operands after the sums.
#define PENSTOCK_MULTIPLY(N, M, A0, A1, A2, A3, B, C) \
  asm volatile("{ .reg .pred adds; setp.ne.b32 adds, %" #C ", 0; " \
    "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" PENSTOCK_SUMS_##M "}, " \
    "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", adds, 1, 1, 0; }" \
    : PENSTOCK_OF_##M(d, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tile_part(b, step)), "r"(int{adds}))
#define PENSTOCK_MULTIPLY_TILES(TYPE, N, M, A, B, C) \
  asm volatile("{ .reg .pred adds; setp.ne.b32 adds, %" #C ", 0; " \
    "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" PENSTOCK_SUMS_##M "}, " \
    "%" #A ", %" #B ", adds, 1, 1, 0, 0; }" \
    : PENSTOCK_OF_##M(d, 0) : "l"(tile_part(a, step)), "l"(tile_part(b, step)), "r"(int{adds}))
#define PENSTOCK_MULTIPLY_ACROSS(TYPE, N, M, A0, A1, A2, A3, B) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" PENSTOCK_SUMS_##M "}, " \
    "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", 1, 1, 1, 1;" \
    : PENSTOCK_OF_##M(d, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tile_rows(b, step, stride)))
// clang-format on

template <int kN>
PENSTOCK_DEVICE void wgmma(const Thread&, float (&d)[kN / 2], const uint32_t (&a)[4],
                           const std::byte* b, int step, bool adds) {
  if constexpr (kN == 16) PENSTOCK_MULTIPLY(16, 8, 8, 9, 10, 11, 12, 13);
  if constexpr (kN == 32) PENSTOCK_MULTIPLY(32, 16, 16, 17, 18, 19, 20, 21);
  if constexpr (kN == 64) PENSTOCK_MULTIPLY(64, 32, 32, 33, 34, 35, 36, 37);
  if constexpr (kN == 128) PENSTOCK_MULTIPLY(128, 64, 64, 65, 66, 67, 68, 69);
  if constexpr (kN == 256) PENSTOCK_MULTIPLY(256, 128, 128, 129, 130, 131, 132, 133);
}
template <int kN, TileNumbers kNumbers>
PENSTOCK_DEVICE void wgmma(const Thread&, float (&d)[kN / 2], const std::byte* a,
                           const std::byte* b, int step, bool adds) {
  if constexpr (kNumbers == TileNumbers::kF16) {
    if constexpr (kN == 16) PENSTOCK_MULTIPLY_TILES(f16, 16, 8, 8, 9, 10);
    if constexpr (kN == 32) PENSTOCK_MULTIPLY_TILES(f16, 32, 16, 16, 17, 18);
    if constexpr (kN == 64) PENSTOCK_MULTIPLY_TILES(f16, 64, 32, 32, 33, 34);
    if constexpr (kN == 128) PENSTOCK_MULTIPLY_TILES(f16, 128, 64, 64, 65, 66);
    if constexpr (kN == 256) PENSTOCK_MULTIPLY_TILES(f16, 256, 128, 128, 129, 130);
  } else {
    if constexpr (kN == 16) PENSTOCK_MULTIPLY_TILES(bf16, 16, 8, 8, 9, 10);
    if constexpr (kN == 32) PENSTOCK_MULTIPLY_TILES(bf16, 32, 16, 16, 17, 18);
    if constexpr (kN == 64) PENSTOCK_MULTIPLY_TILES(bf16, 64, 32, 32, 33, 34);
    if constexpr (kN == 128) PENSTOCK_MULTIPLY_TILES(bf16, 128, 64, 64, 65, 66);
    if constexpr (kN == 256) PENSTOCK_MULTIPLY_TILES(bf16, 256, 128, 128, 129, 130);
  }
}
template <int kN, TileNumbers kNumbers>
PENSTOCK_DEVICE void wgmma_across(const Thread&, float (&d)[kN / 2], const uint32_t (&a)[4],
                                  const std::byte* b, int step, int stride) {
  if constexpr (kNumbers == TileNumbers::kF16) {
    if constexpr (kN == 64) PENSTOCK_MULTIPLY_ACROSS(f16, 64, 32, 32, 33, 34, 35, 36);
    if constexpr (kN == 128) PENSTOCK_MULTIPLY_ACROSS(f16, 128, 64, 64, 65, 66, 67, 68);
    if constexpr (kN == 256) PENSTOCK_MULTIPLY_ACROSS(f16, 256, 128, 128, 129, 130, 131, 132);
  } else {
    if constexpr (kN == 64) PENSTOCK_MULTIPLY_ACROSS(bf16, 64, 32, 32, 33, 34, 35, 36);
    if constexpr (kN == 128) PENSTOCK_MULTIPLY_ACROSS(bf16, 128, 64, 64, 65, 66, 67, 68);
    if constexpr (kN == 256) PENSTOCK_MULTIPLY_ACROSS(bf16, 256, 128, 128, 129, 130, 131, 132);
  }
}
#undef PENSTOCK_MULTIPLY
#undef PENSTOCK_MULTIPLY_ACROSS
#undef PENSTOCK_MULTIPLY_TILES
PENSTOCK_DEVICE void begin_wgmma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
PENSTOCK_DEVICE void end_wgmma() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kMost>
PENSTOCK_DEVICE void wait_for_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kMost) : "memory");
}
template <int kSums>
PENSTOCK_DEVICE void settle_wgmma(float (&d)[kSums]) {
#pragma unroll
  for (float& sum : d) asm volatile("" : "+f"(sum)::"memory");
}
PENSTOCK_DEVICE void show_wgmma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#else

template <int kN, TileNumbers kNumbers>
PENSTOCK_DEVICE void multiply_by_warp(const Thread& t, float (&d)[kN / 2], const uint32_t (&a)[4],
                                      const std::byte* b, int step, bool adds) {
  const int g = t.lane() / 4;
#pragma unroll
  for (int n = 0; n < kN / 8; ++n) {
    uint32_t of_b[2];
    for (int i = 0; i < 2; ++i)
      of_b[i] = *reinterpret_cast<const uint32_t*>(b + tile_piece(8 * n + g, 2 * step + i) +
                                                   4 * (t.lane() % 4));
    float sums[4];
    for (int j = 0; j < 4; ++j) sums[j] = adds ? d[4 * n + j] : 0.0f;
    kNumbers == TileNumbers::kF16 ? t.mma_half(sums, a, of_b) : t.mma(sums, a, of_b);
    for (int j = 0; j < 4; ++j) d[4 * n + j] = sums[j];
  }
}
template <int kN>
PENSTOCK_DEVICE void wgmma(const Thread& t, float (&d)[kN / 2], const uint32_t (&a)[4],
                           const std::byte* b, int step, bool adds) {
  multiply_by_warp<kN, TileNumbers::kBF16>(t, d, a, b, step, adds);
}
template <int kN, TileNumbers kNumbers>
PENSTOCK_DEVICE void wgmma(const Thread& t, float (&d)[kN / 2], const std::byte* a,
                           const std::byte* b, int step, bool adds) {
  uint32_t of_a[4];
  load_fragment(t, a, step, of_a);
  multiply_by_warp<kN, kNumbers>(t, d, of_a, b, step, adds);
}
template <int kN, TileNumbers kNumbers>
PENSTOCK_DEVICE void wgmma_across(const Thread&, float (&)[kN / 2], const uint32_t (&)[4],
                                  const std::byte*, int, int) {}  // never called
template <int kSums>
PENSTOCK_DEVICE void settle_wgmma(float (&)[kSums]) {}
PENSTOCK_DEVICE void begin_wgmma() {}
PENSTOCK_DEVICE void end_wgmma() {}
template <int kMost>
PENSTOCK_DEVICE void wait_for_wgmma() {}
PENSTOCK_DEVICE void show_wgmma() {}

#endif

PENSTOCK_DEVICE void hold_until_known(float x) {
  asm volatile(
      "{ .reg .pred never; setp.lt.f32 never, %0, 0f00000000; @never st.shared.f32 [%1], %0; }" ::
          "f"(x),
      "r"(0)
      : "memory");
}

PENSTOCK_DEVICE uint32_t multiply_add_bf16_pairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

}  // namespace penstock::cuda
