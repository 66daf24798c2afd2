// Where weights lie: in large pages that neighbours share, and given back one by one.
#include "ops/cpu/weight_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/arena.h"
#include "base/memory.h"

namespace penstock {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(WeightMemory, OneMatrixBeginsOnThePageBehindTheOther) {
  WeightPages pages;
  const size_t sizes[] = {3 * kMiB + 100, 70'000, 5 * kMiB, kMiB};
  std::vector<WeightMemory> all;
  for (const size_t size : sizes) all.push_back(pages.allocate(size));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(all[0].data()) % kHugePage, 0);
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i].size(), sizes[i]);
    EXPECT_TRUE(
        std::all_of(all[i].data(), all[i].data() + sizes[i], [](uint8_t b) { return b == 0; }));
    std::memset(all[i].data(), static_cast<int>(i) + 1, sizes[i]);
    if (i > 0) {
      EXPECT_EQ(all[i].data(), all[i - 1].data() + (sizes[i - 1] + 4095) / 4096 * 4096);
    }
  }
  all.erase(all.begin() + 1);  // what is given back takes nothing of its neighbours along
  EXPECT_EQ(all[0].data()[3 * kMiB + 99], 1);
  EXPECT_EQ(all[1].data()[0], 3);
  EXPECT_EQ(all[2].data()[kMiB - 1], 4);
}

TEST(WeightMemory, LargerThanAMapAndSmallerThanAPage) {
  WeightPages pages;
  const WeightMemory large = pages.allocate(300 * kMiB), small = pages.allocate(100);
  ASSERT_NE(large.data(), nullptr);
  large.data()[300 * kMiB - 1] = 1;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data()) % 64, 0);
  EXPECT_EQ(small.data()[99], 0);
}

TEST(WeightMemory, WhatTheSystemRefusesIsEmptyAndTheNextIsNot) {
  WeightPages pages;
  const WeightMemory refused = pages.allocate(size_t{1} << 60);
  EXPECT_EQ(refused.data(), nullptr);
  EXPECT_EQ(refused.size(), 0u);
  EXPECT_NE(pages.allocate(kMiB).data(), nullptr);
}

TEST(WeightMemory, GoesBackToTheSystemWithTheWeight) {
  constexpr size_t kBytes = 16 * kMiB;
  WeightPages pages;
  const WeightMemory stays = pages.allocate(kMiB);
  WeightMemory goes = pages.allocate(kBytes);
  std::memset(stays.data(), 1, kMiB);
  std::memset(goes.data(), 1, kBytes);
  const int64_t before = resident_memory();
  goes = {};
  EXPECT_GT(before - resident_memory(), static_cast<int64_t>(kBytes) * 9 / 10);
  EXPECT_EQ(stays.data()[kMiB - 1], 1);
}

}  // namespace
}  // namespace penstock
