// Checkpoints of tests/golden/models, and how far two of them are apart.
#pragma once
#include <cmath>
#include <filesystem>
#include <string>

#include "model/runner.h"
#include "support/test_data.h"

namespace penstock::testing {

inline std::filesystem::path golden(const std::string& name) {
  return tests_dir() / "golden" / "models" / name;
}

// The distance of two outputs in units of the first one's norm.
inline double relative(const Rows& original, const Rows& other) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < original.size(); ++i) {
    for (size_t j = 0; j < original[i].size(); ++j) {
      difference += std::pow(original[i][j] - other[i][j], 2);
      norm += std::pow(original[i][j], 2);
    }
  }
  return std::sqrt(difference / norm);
}

}  // namespace penstock::testing
