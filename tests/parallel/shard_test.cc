#include "parallel/shard.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock {
namespace {

TEST(Shard, RangesCoverEverythingOnceAndAreCutAtUnits) {
  for (const int n_ranks : {1, 2, 3, 7}) {
    for (const int unit : {1, 16, 32}) {
      for (const int n : {0, 1, 15, 16, 100, 4096, 4097}) {
        int next = 0, most = 0, least = n;
        for (int rank = 0; rank < n_ranks; ++rank) {
          const auto [first, count] = Shard{rank, n_ranks}.range(n, unit);
          EXPECT_EQ(first, next);
          EXPECT_GE(count, 0);
          EXPECT_TRUE(count == 0 || first % unit == 0);
          next += count;
          most = std::max(most, count), least = std::min(least, count);
        }
        EXPECT_EQ(next, n);
        EXPECT_LE(most - least, unit + unit - 1);
      }
    }
  }
}

}  // namespace
}  // namespace penstock
