#include "base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace penstock {
namespace {

std::vector<std::byte> pattern(size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 167 + i / 251);
  return bytes;
}

TEST(Checksum, EveryBitCounts) {
  for (const size_t n : {1, 7, 8, 63, 64, 65, 200, 640}) {
    auto bytes = pattern(n);
    const uint64_t sum = checksum64(bytes);
    for (size_t bit = 0; bit < 8 * n; ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      EXPECT_NE(checksum64(bytes), sum) << n << " bytes, bit " << bit;
      bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
  }
}

TEST(Checksum, LengthAndOrderCount) {
  std::set<uint64_t> sums;
  for (size_t n = 0; n < 300; ++n) sums.insert(checksum64(std::vector<std::byte>(n)));
  EXPECT_EQ(sums.size(), 300u);
  auto bytes = pattern(256);
  const uint64_t sum = checksum64(bytes);
  std::swap_ranges(bytes.begin(), bytes.begin() + 64, bytes.begin() + 64);  // two words of one lane
  EXPECT_NE(checksum64(bytes), sum);
}

// Files outlive programs: a change of these numbers makes every file on disk a damaged one.
TEST(Checksum, StaysTheSame) {
  EXPECT_EQ(checksum64({}), 0xaed95d0784f3dbbcu);
  EXPECT_EQ(checksum64(pattern(1000)), 0x9a9fc945c1553cefu);
}

}  // namespace
}  // namespace penstock
