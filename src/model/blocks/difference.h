// What differs between a block's configuration as two files say it. A function difference(a, b) stands in each block's file and names what
// is computed otherwise, "" = nothing; how tensors lie in a file is not compared.
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

// Files keep numbers as text, or in other types.
inline bool nearly(float x, float y) { return std::fabs(x - y) <= 1e-5f * std::max(std::fabs(x), 1e-6f); }

}  // namespace penstock
