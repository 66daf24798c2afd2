// Strided bytes in memory or in a mapped file: `count` lines of equal length, such as a range of
// columns of a matrix.
#pragma once
#include <cstddef>
#include <span>

namespace penstock {

struct ByteLines {
  std::span<const std::byte> first;  // the first line
  // bytes from the start of a line to the start of the next
  size_t stride = 0;
  size_t count = 1;
};

}  // namespace penstock
