// Keys and values of 8 and of 4 bits (KvCode::kI8, kF8, kI4) as 16-bit numbers, exactly and without
// their scales.
#pragma once
#include <type_traits>

#include "ops/cuda/kernels/own_rows.h"
#include "ops/cuda/kernels/pairs.h"

namespace penstock::cuda {

struct alignas(8) Codes8 {  // 8 numbers of 8 bits
  uint32_t words[2];
};
struct Codes4 {  // 8 numbers of 4 bits, and their factor
  uint32_t word;
  uint32_t factor;
};
// 8 numbers as the cache has them.
template <KvCode kCode>
using CachedEight = std::conditional_t<
    kCode == KvCode::kI4, Codes4,
    std::conditional_t<kCode == KvCode::kI8 || kCode == KvCode::kF8, Codes8, Chunk>>;

// Two bytes of a word, the lower or the upper ones, in a half of a word each.
PENSTOCK_DEVICE uint32_t spread_bytes(uint32_t word, bool upper) {
#if defined(__CUDACC__)
  return __byte_perm(word, 0u, upper ? 0x4342u : 0x4140u);
#else
  const uint32_t two = upper ? word >> 16 : word & 0xffffu;
  return (two & 0xffu) | (two & 0xff00u) << 8;
#endif
}

// Conversions of two codes, a byte in each half of a word.
template <KvCode kCode>
struct WidenedBytes {
  PENSTOCK_DEVICE static uint32_t half_pair_of(uint32_t two) {
    // 1024 + 128 + code, less 1152
    if constexpr (kCode == KvCode::kI8)
      return add_half_pairs((two ^ 0x00800080u) | 0x64006400u, 0xe480e480u);
    // The exponents are less by 8, also of numbers below the normal ones.
    return multiply_half_pairs((two & 0x00800080u) << 8 | (two & 0x007f007fu) << 7, 0x5c005c00u);
  }
  PENSTOCK_DEVICE static uint32_t bf16_pair_of(uint32_t two) {
    // 128 + the seven lower bits, less 128, or less 256 if the upper one is set
    if constexpr (kCode == KvCode::kI8)
      return add_bf16_pairs((two & 0x007f007fu) | 0x43004300u, (two & 0x00800080u) | 0xc300c300u);
    // The exponents are less by 120.
    return multiply_bf16_pairs((two & 0x00800080u) << 8 | (two & 0x007f007fu) << 4, 0x7b807b80u);
  }
  PENSTOCK_DEVICE static Chunk halves(const Codes8& codes) {
    Chunk made;
#pragma unroll
    for (int w = 0; w < 4; ++w)
      made.words[w] = half_pair_of(spread_bytes(codes.words[w / 2], w % 2 == 1));
    return made;
  }
  PENSTOCK_DEVICE static Chunk bf16s(const Codes8& codes) {
    Chunk made;
#pragma unroll
    for (int w = 0; w < 4; ++w)
      made.words[w] = bf16_pair_of(spread_bytes(codes.words[w / 2], w % 2 == 1));
    return made;
  }
};

// Numbers of 4 bits, times their factor: at most 120.
struct WidenedNibbles {
  // The two numbers of a byte, a half of a word each, less 8.
  PENSTOCK_DEVICE static uint32_t two_of(uint32_t word, int byte) {
    const uint32_t low = word >> 8 * byte & 0xfu;
    return ((word >> 8 * byte) << 12 & 0x000f0000u) | low;
  }
  PENSTOCK_DEVICE static Chunk halves(const Codes4& codes) {
    const uint32_t factor = add_half_pairs(0x64006400u | codes.factor * 0x10001u, 0xe400e400u);
    const uint32_t less = multiply_half_pairs(factor, 0xe408e408u);  // -(1024 + 8) times
    Chunk made;
#pragma unroll
    for (int w = 0; w < 4; ++w)
      made.words[w] = multiply_add_half_pairs((two_of(codes.word, w) ^ 0x00080008u) | 0x64006400u,
                                              factor, less);
    return made;
  }
  PENSTOCK_DEVICE static Chunk bf16s(const Codes4& codes) {
    const uint32_t factor = add_bf16_pairs(0x43004300u | codes.factor * 0x10001u, 0xc300c300u);
    const uint32_t less = multiply_bf16_pairs(factor, 0xc308c308u);  // -(128 + 8) times
    Chunk made;
#pragma unroll
    for (int w = 0; w < 4; ++w)
      made.words[w] = multiply_add_bf16_pairs((two_of(codes.word, w) ^ 0x00080008u) | 0x43004300u,
                                              factor, less);
    return made;
  }
};

template <KvCode kCode>
using Widened = std::conditional_t<kCode == KvCode::kI4, WidenedNibbles, WidenedBytes<kCode>>;

// What products take of a cache: its own numbers of 16 bits; of codes keys as FP16, and values as
// BF16, since weights are multiplied with their scales, which may be small.
template <KvCode kCode>
inline constexpr bool kIsScaled = kCode >= KvCode::kI8;
template <KvCode kCode>
using KeyNumbers = Halves<kIsScaled<kCode> ? KvCode::kF16 : kCode>;
template <KvCode kCode>
using ValueNumbers = Halves<kIsScaled<kCode> ? KvCode::kBF16 : kCode>;

// Scale of a key of the 16 tokens at `unit` of a kv head (TokenPlace::unit()), or of a value.
PENSTOCK_DEVICE float scale_of(const KvLayerOnDevice& layer, const std::byte* unit, int kv_head,
                               int row, bool of_value) {
  constexpr int kTokens = KvLayerOnDevice::kUnitTokens;
  const std::byte* const first = unit - kv_head * kTokens * layer.row_bytes;
  const int64_t at = of_value ? layer.value_scales_at : layer.scales_at;
  return reinterpret_cast<const float*>(first + at)[kv_head * kTokens + row];
}

// Numbers `feature` to + 7 of a key, or of a value, of these 16 tokens.
template <KvCode kCode>
PENSTOCK_DEVICE CachedEight<kCode> eight_of(const KvLayerOnDevice& layer, const std::byte* unit,
                                            int kv_head, int row, int feature, bool of_value) {
  const std::byte* const own = unit + (of_value ? layer.values_at : 0) + row * layer.row_bytes;
  if constexpr (kCode == KvCode::kI4) {
    constexpr int kTokens = KvLayerOnDevice::kUnitTokens;
    const std::byte* const first = unit - kv_head * kTokens * layer.row_bytes;
    const std::byte* const factors =
        first + (of_value ? layer.value_factors_at : layer.factors_at) +
        (kv_head * kTokens + row) * (of_value ? layer.value_groups : layer.key_groups);
    return {*reinterpret_cast<const uint32_t*>(own + feature / 2),
            static_cast<uint32_t>(factors[feature / KvLayerOnDevice::kFactorFeatures])};
  } else {
    constexpr int kBytes = kIsScaled<kCode> ? 1 : 2;
    return *reinterpret_cast<const CachedEight<kCode>*>(own + feature * kBytes);
  }
}

}  // namespace penstock::cuda
