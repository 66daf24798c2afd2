#include "quant/plain.h"

#include <cmath>
#include <limits>

namespace penstock::quant {

namespace {

// Decodes a magnitude with `mantissa_bits` of mantissa and exponent bias `bias`, without special
// values.
float decode_f8(unsigned magnitude, int mantissa_bits, int bias) {
  const int exponent = static_cast<int>(magnitude >> mantissa_bits);
  const int mantissa = static_cast<int>(magnitude & ((1u << mantissa_bits) - 1));
  if (exponent == 0) return std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  return std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)),
                    exponent - bias - mantissa_bits);
}

// Returns the bits of the nearest magnitude (ties to even), at most max_bits.
unsigned encode_f8(float magnitude, int mantissa_bits, int bias, unsigned max_bits) {
  if (magnitude >= decode_f8(max_bits, mantissa_bits, bias)) return max_bits;
  if (magnitude == 0) return 0;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  const int unit = std::max(exponent - 1, 1 - bias) - mantissa_bits;
  const auto steps = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, -unit)));
  // A carry of the mantissa increments the exponent.
  const auto exponent_bits = static_cast<unsigned>(unit + mantissa_bits + bias - 1);
  return (exponent_bits << mantissa_bits) + steps;
}

}  // namespace

float decode_f8e4m3(uint8_t bits) {
  const unsigned magnitude = bits & 0x7fu;
  const float value =
      magnitude == 0x7f ? std::numeric_limits<float>::quiet_NaN() : decode_f8(magnitude, 3, 7);
  return (bits & 0x80u) != 0 ? -value : value;
}

float decode_f8e5m2(uint8_t bits) {
  // E5M2 is the upper half of a binary16.
  return to_float(Half{static_cast<uint16_t>(bits << 8)});
}

uint8_t encode_f8e4m3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  return sign | static_cast<uint8_t>(encode_f8(std::fabs(value), 3, 7, 0x7e));
}

uint8_t encode_f8e5m2(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  return sign | static_cast<uint8_t>(encode_f8(std::fabs(value), 2, 15, 0x7b));
}

}  // namespace penstock::quant
