// Equally long pieces of what is in memory or in a map, equally far apart: the part of a matrix's rows that somebody wants.
#pragma once
#include <cstddef>
#include <span>

namespace penstock {

struct ByteLines {
  std::span<const std::byte> first;
  size_t stride = 0;  // from where one begins to where the next does
  size_t count = 1;
};

}  // namespace penstock
