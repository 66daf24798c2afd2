#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace penstock {
namespace {

TEST(Memory, ThereIsSomeAndNotMoreThanTheMachineHas) {
  EXPECT_GT(available_memory(), 0);
  EXPECT_LE(available_memory(), total_memory());
}

TEST(Memory, WhatIsPromisedCountsUntilItIsTouchedOrGivenBack) {
  constexpr size_t kBytes = size_t{256} << 20;
  constexpr double kPages = 4 << 20;  // memory may come in large pages
  void* mapping = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapping, MAP_FAILED);
  const int64_t before = promised_memory();
  {
    PromisedMemory promised(mapping, kBytes);
    EXPECT_EQ(promised_memory() - before, int64_t{kBytes});
    std::memset(mapping, 1, kBytes / 2);
    EXPECT_NEAR(promised_memory() - before, kBytes / 2, kPages);
    PromisedMemory moved = std::move(promised);
    EXPECT_NEAR(promised_memory() - before, kBytes / 2, kPages);
  }
  EXPECT_EQ(promised_memory(), before);
  munmap(mapping, kBytes);
}

}  // namespace
}  // namespace penstock
