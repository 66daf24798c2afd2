// Products of warp groups (kernels/warpgroup.h) on fibers: each warp for itself, and at once.
#pragma once
#include "ops/cuda/kernels/warpgroup.h"

namespace penstock::cuda {

namespace emulation {
struct WgmmaLane {
  float* d;
  const uint32_t* a;
  const std::byte* b;
  int step, n_columns;
  // not 0: columns lie side by side, in tiles so far apart
  int stride = 0;
};
void wgmma_together(void* const* lanes, int n);
void wgmma_half_together(void* const* lanes, int n);
}  // namespace emulation

template <int kN, TileNumbers kNumbers>
void multiply_by_warp(const Thread& t, float (&d)[kN / 2], const uint32_t (&a)[4],
                      const std::byte* b, int step, bool adds) {
  if (!adds)
    for (float& sum : d) sum = 0.0f;
  emulation::WgmmaLane mine{d, a, b, step, kN};
  t.fibers->meet_warp(
      t.index, &mine,
      kNumbers == TileNumbers::kF16 ? emulation::wgmma_half_together : emulation::wgmma_together);
}
template <int kN>
void wgmma(const Thread& t, float (&d)[kN / 2], const uint32_t (&a)[4], const std::byte* b,
           int step, bool adds) {
  multiply_by_warp<kN, TileNumbers::kBF16>(t, d, a, b, step, adds);
}
template <int kN, TileNumbers kNumbers>
void wgmma(const Thread& t, float (&d)[kN / 2], const std::byte* a, const std::byte* b, int step,
           bool adds) {
  uint32_t of_a[4];
  load_fragment(t, a, step, of_a);
  multiply_by_warp<kN, kNumbers>(t, d, of_a, b, step, adds);
}
template <int kN, TileNumbers kNumbers>
void wgmma_across(const Thread& t, float (&d)[kN / 2], const uint32_t (&a)[4], const std::byte* b,
                  int step, int stride) {
  emulation::WgmmaLane mine{d, a, b, step, kN, stride};
  t.fibers->meet_warp(
      t.index, &mine,
      kNumbers == TileNumbers::kF16 ? emulation::wgmma_half_together : emulation::wgmma_together);
}
template <int kSums>
void settle_wgmma(float (&)[kSums]) {}
inline void begin_wgmma() {}
inline void end_wgmma() {}
template <int kMost>
void wait_for_wgmma() {}
inline void hold_until_known(float) {}
inline void show_wgmma() {}

inline uint32_t multiply_add_bf16_pairs(uint32_t a, uint32_t b, uint32_t c) {
  const auto of = [](uint32_t x, uint32_t y, uint32_t z) {
    return uint32_t{float_to_bf16(
        std::fma(float_of_bits(x << 16), float_of_bits(y << 16), float_of_bits(z << 16)))};
  };
  return of(a & 0xffffu, b & 0xffffu, c & 0xffffu) | of(a >> 16, b >> 16, c >> 16) << 16;
}

}  // namespace penstock::cuda
