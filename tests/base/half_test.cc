// All 65,536 patterns of both formats, and rounding around every one of them.
#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace penstock {
namespace {

// The value of a binary16 pattern, from its definition.
double exact_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST(Half, EveryPatternHasItsValueAndComesBack) {
  for (int i = 0; i < 65536; ++i) {
    const Half half{static_cast<uint16_t>(i)};
    const float value = to_float(half);
    const double expected = exact_half(half.bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(to_float(to_half(value))));
    } else {
      ASSERT_EQ(value, expected) << i;
      ASSERT_EQ(std::signbit(value), (i & 0x8000) != 0);
      ASSERT_EQ(to_half(value).bits, half.bits);
    }
  }
}

TEST(Half, RoundsToNearestAndHalvesToEven) {
  for (int i = 0; i < 0x7c00; ++i) {  // between this pattern and the next
    const auto low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
    const double a = exact_half(low), b = high == 0x7c00 ? 65536.0 : exact_half(high);
    const auto middle = static_cast<float>((a + b) / 2);  // exact in binary32
    const uint16_t even = (low & 1) == 0 ? low : high;
    for (const uint16_t sign : {0, 0x8000}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      ASSERT_EQ(to_half(s * middle).bits, even | sign) << i;
      ASSERT_EQ(to_half(s * std::nextafter(middle, 0.0f)).bits, low | sign) << i;
      ASSERT_EQ(to_half(s * std::nextafter(middle, 1e9f)).bits, high | sign) << i;
    }
  }
  EXPECT_EQ(to_half(INFINITY).bits, 0x7c00);
  EXPECT_EQ(to_half(3e38f).bits, 0x7c00);
  EXPECT_EQ(to_half(-1e-30f).bits, 0x8000);
}

#if defined(__FLT16_MAX__) && defined(__x86_64__)
TEST(Half, AgreesWithTheCompilerOnManyFloats) {
  for (uint64_t i = 0; i < (uint64_t{1} << 32); i += 4093) {
    const auto bits = static_cast<uint32_t>(i);
    float value;
    std::memcpy(&value, &bits, 4);
    if (std::isnan(value)) continue;
    const auto half = static_cast<_Float16>(value);
    uint16_t expected;
    std::memcpy(&expected, &half, 2);
    ASSERT_EQ(to_half(value).bits, expected) << value;
  }
}
#endif

TEST(BFloat16, EveryPatternComesBackAndRoundsToEven) {
  for (int i = 0; i < 65536; ++i) {
    const BFloat16 b{static_cast<uint16_t>(i)};
    const float value = to_float(b);
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    ASSERT_EQ(bits, static_cast<uint32_t>(i) << 16);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(to_bfloat16(value))));
      continue;
    }
    ASSERT_EQ(to_bfloat16(value).bits, i);
    if (std::isinf(value)) continue;
    for (const uint32_t low : {0x7fffu, 0x8000u, 0x8001u}) {
      const uint32_t between = bits | low;
      float x;
      std::memcpy(&x, &between, 4);
      const bool up = low > 0x8000u || (low == 0x8000u && (i & 1) != 0);
      ASSERT_EQ(to_bfloat16(x).bits, i + up);
    }
  }
}

TEST(BFloat16, ANanWithLowBitsOnlyStaysANan) {
  const uint32_t bits = 0x7f800001u;
  float value;
  std::memcpy(&value, &bits, 4);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(value))));
}

}  // namespace
}  // namespace penstock
