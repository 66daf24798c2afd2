// Where tests find the optional data folder. Tests that need it are in *_data_test.cc files (label `data`).
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace penstock {

// The folder named by PENSTOCK_TEST_DATA, else ../shared/data beside the project; may not exist.
inline std::filesystem::path test_data_dir() {
  const char* dir = std::getenv("PENSTOCK_TEST_DATA");
  return dir != nullptr ? dir : PENSTOCK_DEFAULT_TEST_DATA;
}

}  // namespace penstock

// Skips the running test, saying which path was missing. Use as the first line of every data test.
#define REQUIRE_TEST_DATA(relative)                                                           \
  do {                                                                                        \
    if (!std::filesystem::exists(::penstock::test_data_dir() / (relative)))                   \
      GTEST_SKIP() << "no test data: " << (::penstock::test_data_dir() / (relative)).string() \
                   << " (set PENSTOCK_TEST_DATA)";                                            \
  } while (false)
