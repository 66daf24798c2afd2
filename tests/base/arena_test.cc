#include "base/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace penstock {
namespace {

TEST(Arena, GivesAlignedDisjointMemory) {
  Arena arena;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::pair<unsigned char*, size_t>> parts;
    for (size_t i = 0; i < 300; ++i) {
      const size_t size = i * i % 40000;
      auto* p = static_cast<unsigned char*>(arena.allocate(size));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
      std::memset(p, static_cast<int>(i & 255), size);
      parts.emplace_back(p, size);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      for (size_t j = 0; j < parts[i].second; ++j) ASSERT_EQ(parts[i].first[j], i & 255);
    }
    arena.reset();
  }
}

TEST(Arena, StopsGrowingAfterTheLargestRound) {
  Arena arena;
  for (int i = 0; i < 50; ++i) arena.allocate(100000);
  arena.reset();
  const size_t capacity = arena.capacity();
  EXPECT_GE(capacity, 5000000u);
  void* first = nullptr;
  for (int round = 0; round < 3; ++round) {
    void* p = arena.allocate(100000);
    if (first == nullptr) first = p;
    EXPECT_EQ(p, first);  // the same memory again
    for (int i = 1; i < 50; ++i) arena.allocate(100000);
    EXPECT_EQ(arena.capacity(), capacity);
    arena.reset();
  }
}

TEST(Arena, ARequestLargerThanAnyChunk) {
  Arena arena;
  arena.allocate(10);
  auto* p = arena.allocate_array<double>(1000000);
  p[999999] = 1.0;
  EXPECT_GE(arena.capacity(), 8000000u);
}

}  // namespace
}  // namespace penstock
