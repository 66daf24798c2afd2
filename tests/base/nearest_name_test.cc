#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(NearestName, DistanceIsInLetters) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3);
}

TEST(NearestName, IsTheOneWithTheFewestLettersToChange) {
  constexpr std::string_view kKnown[] = {"generate", "serve", "score"};
  EXPECT_EQ(nearest_name("generat", kKnown), "generate");
  EXPECT_EQ(nearest_name("srve", kKnown), "serve");
  EXPECT_EQ(nearest_name("score", kKnown), "score");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace penstock
