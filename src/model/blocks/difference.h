// Comparison of a block's configuration in two files. Each block has a function difference(a, b)
// that returns the name of a property by which results would differ, "" if there is none. The
// layout of tensors in a file is not compared.
#pragma once
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

namespace penstock {

struct Compared {
  std::string_view name;
  bool same;
};
inline std::string_view first_difference(std::initializer_list<Compared> all) {
  for (const Compared& each : all)
    if (!each.same) return each.name;
  return "";
}

// Equal but for rounding: files store numbers as text, or in different types.
inline bool nearly(float x, float y) {
  return std::fabs(x - y) <= 1e-5f * std::max(std::fabs(x), 1e-6f);
}

}  // namespace penstock
