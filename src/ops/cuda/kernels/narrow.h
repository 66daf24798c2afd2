// Keys and values of 4 bits (KvCode::kI4): rotation, rounding and numbers. Codes, factors and scales
// are those of the CPU's kernels (kernels/generic/narrow_units.inl), to the bit.
#pragma once
#include "kernels/feature_sign.h"
#include "ops/cuda/kernels/cache.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

// The threads that rotate rows in shared memory together.
struct WarpTeam {
  const Thread& t;
  static constexpr int kSize = kWarp;
  PENSTOCK_DEVICE int index() const { return t.lane(); }
  PENSTOCK_DEVICE void sync() const { t.sync_warp(); }
};
template <int kThreads>
struct BlockTeam {
  const Thread& t;
  static constexpr int kSize = kThreads;
  PENSTOCK_DEVICE int index() const { return t.index; }
  PENSTOCK_DEVICE void sync() const { t.sync(); }
};

// Rotates rows of n features, `total` numbers in shared memory, forth or back. n is a multiple of
// `block`, a power of two. The team meets before and after.
template <class Team>
PENSTOCK_DEVICE void turn_rows(const Team& team, float* x, int total, int n, int block, bool back) {
  const float factor = 1.0f / sqrtf(static_cast<float>(block));
  const auto change_signs = [&] {
    for (int i = team.index(); i < total; i += Team::kSize) x[i] *= feature_sign(i % n) * factor;
    team.sync();
  };
  team.sync();
  if (!back) change_signs();
  for (int shift = 0; 1 << shift < block; ++shift) {
    const int stride = 1 << shift;
    for (int pair = team.index(); pair < total / 2; pair += Team::kSize) {
      float* const first = x + ((pair >> shift << (shift + 1)) | (pair & (stride - 1)));
      const float a = first[0], b = first[stride];
      first[0] = a + b, first[stride] = a - b;
    }
    team.sync();
  }
  if (back) change_signs();
}

// Where a row is stored.
struct NarrowPlace {
  std::byte *codes, *factors;  // two codes in a byte, the first in its low half
  int code_bytes;
  float* scale;
};

// Rounds a rotated row of n numbers and stores it. REQUIRES: called by a whole warp, which sees the
// row.
PENSTOCK_DEVICE void store_codes(const Thread& t, const float* x, int n, const NarrowPlace& to) {
  constexpr int kFeatures = KvLayerOnDevice::kFactorFeatures;
  static_assert(kFeatures == kWarp);
  constexpr float kMostCode = 7.0f, kMostFactor = 15.0f;
  float largest = 0.0f;
  for (int i = t.lane(); i < n; i += kWarp) largest = fmaxf(largest, fabsf(x[i]));
  const float scale = warp_max(t, largest) / (kMostCode * kMostFactor);
  const float inverse = scale > 1e-30f ? 1.0f / scale : 0.0f;
  for (int first = 0; first < n; first += kFeatures) {
    const float own = first + t.lane() < n ? x[first + t.lane()] : 0.0f;
    const float wanted = warp_max(t, fabsf(own)) * inverse / kMostCode;
    int factor = static_cast<int>(wanted);
    factor += static_cast<float>(factor) < wanted ? 1 : 0;
    factor = factor < 1 ? 1 : factor > 15 ? 15 : factor;
    const float value = own * inverse / static_cast<float>(factor);
    int code = static_cast<int>(value + (value < 0.0f ? -0.5f : 0.5f));
    code = code > 7 ? 7 : code < -7 ? -7 : code;
    const int next = t.shuffle_xor(code, 1), at = (first + t.lane()) / 2;
    if (t.lane() % 2 == 0 && at < to.code_bytes)
      to.codes[at] = static_cast<std::byte>((code & 15) | (next & 15) << 4);
    if (t.lane() == 0) to.factors[first / kFeatures] = static_cast<std::byte>(factor);
  }
  if (t.lane() == 0) *to.scale = scale > 1e-30f ? scale : 0.0f;
}

// The code in the last four bits, in two's complement: by bits of a float, since GPUs convert integers
// slowly.
PENSTOCK_DEVICE float number_of_code(uint32_t bits) {
  constexpr uint32_t kBits = 0x4b000000u;  // 2^23, whose last bit is 1
  return float_of_bits((bits & 15u) ^ (kBits | 8u)) - (0x1p23f + 8.0f);
}

// Code times factor of feature d, a whole number.
PENSTOCK_DEVICE float narrow_number(const std::byte* codes, const std::byte* factors, int d) {
  const auto two = static_cast<uint32_t>(codes[d / 2]);
  const int factor = static_cast<int>(factors[d / KvLayerOnDevice::kFactorFeatures]);
  return number_of_code(two >> d % 2 * 4) * static_cast<float>(factor);
}

}  // namespace penstock::cuda
