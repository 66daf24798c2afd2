#include "draft/speedup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace penstock {
namespace {

TEST(Speedup, ExpectedTokensAreTheGeometricSum) {
  for (const double a : {0.1, 0.5, 0.7, 0.95}) {
    for (int k = 0; k <= 12; ++k) {
      EXPECT_NEAR(expected_tokens(a, k), (1 - std::pow(a, k + 1)) / (1 - a), 1e-12)
          << a << " " << k;
    }
  }
  EXPECT_DOUBLE_EQ(expected_tokens(1.0, 4), 5.0);  // where the closed form is 0 / 0
  EXPECT_DOUBLE_EQ(expected_tokens(0.0, 4), 1.0);
  EXPECT_DOUBLE_EQ(expected_tokens(0.5, 2), 1.75);
}

TEST(Speedup, AcceptanceMayDependOnTheDepth) {
  const std::vector<double> by_depth = {0.8, 0.5};
  EXPECT_DOUBLE_EQ(expected_tokens(by_depth, 1), 1.8);
  EXPECT_DOUBLE_EQ(expected_tokens(by_depth, 2), 1.8 + 0.4);
  EXPECT_DOUBLE_EQ(expected_tokens(by_depth, 3), 1.8 + 0.4 + 0.2);  // the last one goes on
  EXPECT_DOUBLE_EQ(expected_tokens(std::span<const double>(), 3), 1.0);
}

TEST(Speedup, VerifyCostsGoOnWithTheirLastSlope) {
  SpeculationCosts costs{.plain = 10};
  EXPECT_DOUBLE_EQ(costs.verify_seconds(7), 10);
  costs.verify = {10, 11, 13};
  EXPECT_DOUBLE_EQ(costs.verify_seconds(1), 11);
  EXPECT_DOUBLE_EQ(costs.verify_seconds(4), 17);
  costs.draft_token = 2, costs.draft_round = 1;
  EXPECT_DOUBLE_EQ(costs.round_seconds(2), 1 + 4 + 13);
}

// Leviathan et al. 2023, theorem 3.8: the speed-up is (1 - a^(k+1)) / ((1 - a)(k c + 1)), c = draft
// / target.
TEST(Speedup, BestLengthIsTheKnownOne) {
  SpeculationCosts costs{.plain = 1, .draft_token = 0.05};
  const double a = 0.7;
  const SpeculationEstimate best = best_speculation({&a, 1}, 20, costs);
  EXPECT_EQ(best.length, 6);  // 5 gives 2.352936
  EXPECT_NEAR(best.speedup, (1 - std::pow(0.7, 7)) / (0.3 * 1.3), 1e-12);
  const double low = 0.05;
  EXPECT_EQ(best_speculation({&low, 1}, 20, costs).length, 0);
  EXPECT_DOUBLE_EQ(best_speculation({&low, 1}, 20, costs).speedup, 1);
  const double sure = 1.0;
  EXPECT_EQ(best_speculation({&sure, 1}, 20, costs).length, 20);
}

TEST(Speedup, AgreesWithSimulatedRounds) {
  std::mt19937_64 random(7);
  const SpeculationCosts costs{
      .plain = 8, .draft_token = 0.9, .draft_round = 0.3, .verify = {8, 8.5, 9, 12, 12.5}};
  for (const double a : {0.3, 0.6, 0.85}) {
    for (const int k : {1, 3, 6}) {
      std::bernoulli_distribution accepted(a);
      double seconds = 0;
      int64_t tokens = 0;
      for (int round = 0; round < 200000; ++round) {
        seconds += costs.round_seconds(k);
        ++tokens;
        for (int i = 0; i < k && accepted(random); ++i) ++tokens;
      }
      const double simulated = static_cast<double>(tokens) * costs.plain / seconds;
      EXPECT_NEAR(estimate_speculation({&a, 1}, k, costs).speedup, simulated, 0.01 * simulated);
    }
  }
}

}  // namespace
}  // namespace penstock
