#include "draft/draft_prices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace penstock {
namespace {

// tokens gained by a chain of n guesses, straight from the definition
double chain_gain(double chance, int n, const std::vector<float>& checking, double pass) {
  double kept = 0;
  for (int i = 1; i <= n; ++i) kept += std::pow(chance, i);
  return kept - checking[static_cast<size_t>(n)] - pass * n;
}

TEST(DraftPrices, BestLengthIsTheArgmaxWhateverTheCostsLookLike) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> share(0, 1);
  int n_none = 0, n_long = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<float> checking = {0};
    while (checking.size() < 20)
      checking.push_back(checking.back() + (share(random) < 0.2f ? 1.2f : 0.1f));
    const DraftPrices prices{checking, 0.2f * share(random)};
    const float chance = share(random);
    const int best = best_length(chance, prices, 16);
    const double gain = chain_gain(chance, best, checking, prices.pass);
    for (int n = 0; n <= 16; ++n)
      EXPECT_LE(chain_gain(chance, n, checking, prices.pass), gain + 1e-4);
    n_none += best == 0, n_long += best > 4;
  }
  EXPECT_GT(n_none, 100);
  EXPECT_GT(n_long, 100);
}

TEST(DraftPrices, StopsBeforeARowThatCostsMoreThanAllBeforeIt) {
  // Seven guesses are cheap, the eighth (the ninth row) is not, and more of the same follow for
  // nothing.
  std::vector<float> checking = {0, 0.1f, 0.3f, 0.3f, 0.55f, 0.6f, 0.8f, 0.85f};
  while (checking.size() < 16) checking.push_back(2.0f);
  const DraftPrices prices{checking};
  EXPECT_EQ(best_length(0.9f, prices, 15), 15);  // 7.1 tokens of fifteen guesses pay for it
  EXPECT_EQ(best_length(0.8f, prices, 15), 7);
  EXPECT_EQ(best_length(0.5f, prices, 15), 3);
  EXPECT_EQ(best_length(0.05f, prices, 15), 0);
  EXPECT_EQ(best_length(0.9f, prices, 5), 5);
  EXPECT_EQ(best_length(1.0f, {}, 5), 0) << "no prices, no drafts";
}

TEST(DraftPrices, TakesTheFirstPartOfATreeThatGainsMost) {
  const std::vector<float> checking = {0, 0.1f, 0.3f, 0.3f, 0.9f};
  const DraftPrices prices{checking};
  const std::vector<float> falling = {0.5f, 0.2f, 0.15f, 0.1f}, poor = {0.09f, 0.05f, 0.02f};
  EXPECT_EQ(nodes_worth(falling, prices), 3);
  EXPECT_EQ(nodes_worth(std::span(falling).first(2), prices), 1);
  EXPECT_EQ(nodes_worth(poor, prices), 0);
  EXPECT_EQ(nodes_worth({}, prices), 0);
}

TEST(DraftPrices, GoesOnWhereLaterGuessesPayForTheNextOne) {
  const std::vector<float> checking = {0, 0.1f, 0.5f, 0.5f, 0.5f, 2.0f};
  const DraftPrices prices{checking, 0.05f};
  EXPECT_TRUE(worth_another(1, 0.9f, 0.8f, prices, 16));  // 0.72 for 0.45, more after it
  EXPECT_TRUE(worth_another(1, 0.5f, 0.7f, prices, 16));  // 0.35 alone would not do
  EXPECT_FALSE(worth_another(1, 0.5f, 0.7f, prices, 2));
  EXPECT_FALSE(worth_another(1, 0.3f, 0.7f, prices, 16));
  EXPECT_TRUE(worth_another(2, 0.3f, 0.7f, prices, 16));  // its row is there already
  EXPECT_FALSE(worth_another(4, 0.9f, 0.9f, prices, 16));
  EXPECT_FALSE(worth_another(5, 1.0f, 1.0f, prices, 16)) << "beyond the prices";
}

TEST(Confidence, LearnsWhatTheDraftersProbabilitiesMean) {
  Confidence confidence;
  const float before = confidence.right(0.95f);
  EXPECT_GT(before, 0.8f);
  // Overconfident: what it is sure of is right in half of the cases; nothing behind a wrong guess
  // is counted.
  std::mt19937 random(2);
  const std::vector<float> sure = {0.95f, 0.95f, 0.35f};
  for (int i = 0; i < 400; ++i) {
    int n = 0;
    while (n < 2 && random() % 2 == 0) ++n;
    confidence.learn(sure, n == 2 && random() % 8 == 0 ? 3 : n);
  }
  EXPECT_NEAR(confidence.right(0.95f), 0.5f, 0.2f);
  EXPECT_NEAR(confidence.right(0.35f), 0.125f, 0.15f);
  EXPECT_NEAR(confidence.right(0.55f), 0.55f, 1e-6f) << "never seen";
  EXPECT_LT(confidence.mean(), 0.6f);
  EXPECT_GE(confidence.right(1.5f), 0.0f);
  EXPECT_GE(confidence.right(-1.0f), 0.0f);
}

}  // namespace
}  // namespace penstock
