// What ranks sum in tests: the same for a rank wherever it is asked for.
#pragma once
#include <cstddef>
#include <random>
#include <vector>

namespace penstock {

inline std::vector<float> numbers_of_rank(int rank, size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace penstock
