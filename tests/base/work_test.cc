#include "base/work.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Work, NobodyWaitsOutsideAScope) {
  give_way();
  end_work({ErrorCode::kInvalidArgument, "too much"});
  EXPECT_EQ(WorkScope::current(), nullptr);
}

TEST(Work, EndsWhenItIsCancelled) {
  Work work;
  const WorkScope scope(work);
  give_way();
  work.cancel();
  try {
    give_way();
    FAIL() << "it goes on";
  } catch (const WorkEnded& ended) {
    EXPECT_EQ(ended.error().code, ErrorCode::kCancelled);
  }
}

TEST(Work, EndsWithAReason) {
  Work work;
  const WorkScope scope(work);
  try {
    end_work({ErrorCode::kInvalidArgument, "too much"});
    FAIL() << "it goes on";
  } catch (const WorkEnded& ended) {
    EXPECT_EQ(ended.error().code, ErrorCode::kInvalidArgument);
    EXPECT_STREQ(ended.what(), "too much");
  }
}

TEST(Work, ScopesNest) {
  Work outer, inner;
  const WorkScope first(outer);
  outer.cancel();
  {
    const WorkScope second(inner);
    give_way();
  }
  EXPECT_THROW(give_way(), WorkEnded);
}

TEST(Work, LongStepsAreCounted) {
  Work work;
  int n = 0;
  while (work.take_long_step()) ++n;
  EXPECT_GT(n, 10);
  EXPECT_LT(n, 1000);
}

}  // namespace
}  // namespace penstock
