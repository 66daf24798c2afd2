// Where tests find their files. Tests that need the optional data folder are in *_data_test.cc
// files (label `data`).
#pragma once
#include <filesystem>

namespace penstock {

std::filesystem::path tests_dir();   // this checkout's tests/
std::filesystem::path models_dir();  // this checkout's models/: what ships
// The folder named by PENSTOCK_TEST_DATA, else ../shared/data beside the project; may not exist.
std::filesystem::path test_data_dir();
// PENSTOCK_THOROUGH=1: tests that usually take a part of many cases alike take all of them.
bool thorough();

}  // namespace penstock

// Skips the running test, saying which path was missing. Use as the first line of every data test.
#define REQUIRE_TEST_DATA(relative)                                                           \
  do {                                                                                        \
    if (!std::filesystem::exists(::penstock::test_data_dir() / (relative)))                   \
      GTEST_SKIP() << "no test data: " << (::penstock::test_data_dir() / (relative)).string() \
                   << " (set PENSTOCK_TEST_DATA)";                                            \
  } while (false)
