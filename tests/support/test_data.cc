#include "support/test_data.h"

#include <cstdlib>

namespace penstock {

// The variables: of tests that were carried to another machine.
std::filesystem::path tests_dir() {
  const char* dir = std::getenv("PENSTOCK_TESTS_DIR");
  return dir != nullptr ? dir : PENSTOCK_TESTS_DIR;
}

std::filesystem::path models_dir() {
  const char* dir = std::getenv("PENSTOCK_MODELS_DIR");
  return dir != nullptr ? dir : PENSTOCK_MODELS_DIR;
}

std::filesystem::path test_data_dir() {
  const char* dir = std::getenv("PENSTOCK_TEST_DATA");
  return dir != nullptr ? dir : PENSTOCK_DEFAULT_TEST_DATA;
}

bool thorough() { return std::getenv("PENSTOCK_THOROUGH") != nullptr; }

}  // namespace penstock
