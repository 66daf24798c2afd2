#include "engine/compute/step_costs.h"

#include <gtest/gtest.h>

#include <random>

namespace penstock {
namespace {

TEST(StepCosts, KeepsTheStepsBetweenTiles) {
  StepCosts costs;
  for (const auto& [rows, seconds] : {std::pair{1, 1.0}, {4, 1.3}, {8, 1.8}, {9, 3.0}, {16, 3.1}})
    costs.add(rows, seconds);
  EXPECT_DOUBLE_EQ(costs.shape(1, 0.2), 1.0);
  EXPECT_DOUBLE_EQ(costs.shape(8, 0.2), 1.8);
  EXPECT_DOUBLE_EQ(costs.shape(9, 0.2), 3.0);
  EXPECT_NEAR(costs.shape(6, 0.2), 1.55, 1e-9) << "on a line between its neighbours";
  EXPECT_NEAR(costs.shape(20, 0.2), 3.1 + 4 * 2.1 / 15, 1e-9)
      << "beyond the last by the mean slope";
}

TEST(StepCosts, GuessesFromASinglePoint) {
  StepCosts costs;
  EXPECT_TRUE(costs.empty());
  costs.add(8, 2.0);
  EXPECT_DOUBLE_EQ(costs.shape(8, 0.25), 2.0);
  EXPECT_NEAR(costs.shape(10, 0.25), 2.0 + 2 * 0.25 * 2.0 / 8, 1e-9);
  EXPECT_GT(costs.shape(1, 0.25), 0.0);
  EXPECT_LT(costs.shape(1, 0.25), 2.0);
}

TEST(StepCosts, OneSizeInUseTellsAboutAllOthers) {
  StepCosts costs;
  for (const auto& [rows, seconds] : {std::pair{1, 1.0}, {4, 1.3}, {8, 1.8}})
    costs.add_best(rows, seconds);
  // Everything takes twice as long now, as it does behind a long context.
  for (int i = 0; i < 200; ++i) costs.add(4, 2.6);
  EXPECT_NEAR(costs.level() * costs.shape(4, 0.2), 2.6, 0.05);
  EXPECT_NEAR(costs.shape(4, 0.2) / costs.shape(1, 0.2), 1.3, 0.15);
  EXPECT_NEAR(costs.shape(8, 0.2) / costs.shape(4, 0.2), 1.8 / 1.3, 0.2);
}

TEST(StepCosts, DisturbancesDoNotMoveIt) {
  StepCosts costs;
  for (const auto& [rows, seconds] : {std::pair{1, 1.0}, {4, 1.3}}) costs.add_best(rows, seconds);
  std::mt19937 random(3);
  for (int i = 0; i < 600; ++i) {
    const int rows = i % 8 == 0 ? 1 : 4;
    const double seconds = rows == 1 ? 1.0 : 1.3;
    costs.add(rows, random() % 5 == 0 ? 9 * seconds : seconds);
  }
  EXPECT_NEAR(costs.shape(4, 0.2) / costs.shape(1, 0.2), 1.3, 0.13);
  EXPECT_LT(costs.level() * costs.shape(1, 0.2), 1.4);
}

// As when the machine was busy the first time that three sequences decoded.
TEST(StepCosts, AFirstDisturbedStepIsForgotten) {
  StepCosts costs;
  for (const auto& [rows, seconds] : {std::pair{1, 1.0}, {4, 1.6}}) costs.add_best(rows, seconds);
  costs.add(3, 3.0);
  EXPECT_GT(costs.shape(3, 0.2), 1.6);
  EXPECT_TRUE(costs.knows(3));
  EXPECT_FALSE(costs.knows(3, 3));
  costs.add(3, 1.4);
  EXPECT_DOUBLE_EQ(costs.shape(3, 0.2), 1.4);
  costs.add(3, 1.3);
  EXPECT_DOUBLE_EQ(costs.shape(3, 0.2), 1.4) << "the median of three";
  EXPECT_TRUE(costs.knows(3, 3));
  EXPECT_DOUBLE_EQ(costs.level(), 1.0);
}

// As when sequences end one after the other and the machine is busy for one of those steps: it made
// all larger sizes as dear for good.
TEST(StepCosts, ASizeSeenOnceTellsLittleAboutALargerOne) {
  StepCosts costs;
  for (const auto& [rows, seconds] : {std::pair{1, 1.0}, {16, 1.5}, {32, 2.0}})
    costs.add_best(rows, seconds);
  for (int i = 0; i < 500; ++i) costs.add(32, 2.0);
  costs.add(26, 4.0);
  EXPECT_NEAR(costs.shape(32, 0.2), 2.0, 0.02);
  EXPECT_NEAR(costs.shape(26, 0.2), 2.0, 0.02);
  EXPECT_NEAR(costs.shape(16, 0.2), 1.5, 0.02);
  // One that is seen as often counts as much.
  for (int i = 0; i < 500; ++i) costs.add(26, 4.0), costs.add(32, 2.0);
  EXPECT_DOUBLE_EQ(costs.shape(26, 0.2), costs.shape(32, 0.2));
}

TEST(StepCosts, MoreRowsNeverCostLess) {
  StepCosts costs;
  for (const auto& [rows, seconds] :
       {std::pair{1, 1.0}, {4, 1.5}, {8, 1.2}, {100, 4.0}, {101, 4.0}})
    costs.add(rows, seconds);
  double before = 0;
  for (int rows = 1; rows < 300; ++rows) {
    EXPECT_GE(costs.shape(rows, 0.2), before) << rows;
    before = costs.shape(rows, 0.2);
  }
}

}  // namespace
}  // namespace penstock
