// FP16 and BF16 as 16-bit patterns, with conversions that round to nearest even. Portable; kernels
// have faster ones.
#pragma once
#include <bit>
#include <cstdint>

namespace penstock {

struct Half {  // IEEE 754 binary16
  uint16_t bits;
};
struct BFloat16 {  // the upper half of a binary32
  uint16_t bits;
};

inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

inline float to_float(Half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fffu) << 13;
  // inf, nan
  if (magnitude >= 0x0f800000u) return std::bit_cast<float>(sign | magnitude | 0x7f800000u);
  // Rescaling the exponent by a multiplication also normalizes subnormals.
  return std::bit_cast<float>(sign |
                              std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f));
}

inline BFloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return {static_cast<uint16_t>((bits >> 16) | 0x40u)};  // keep a nan a nan
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

inline Half to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  // rounds to 65536 or more
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 aligns the mantissa at 2^-24 and rounds
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  magnitude += 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((magnitude - 0x38000000u) >> 13))};
}

}  // namespace penstock
