// Which experts a token takes, against plain sorting.
#include "ops/cpu/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace penstock {
namespace {

struct Expected {
  std::vector<int> experts;
  std::vector<double> weights;
};

// By the definition, with sorts.
Expected expected(const std::vector<float>& logits, const ExpertRouting& routing,
                  const std::vector<float>& bias) {
  const size_t n = logits.size(), per_group = n / static_cast<size_t>(routing.n_groups);
  std::vector<double> scores(n), merits(n);
  double sum = 0;
  for (const float l : logits) sum += std::exp(double{l});
  for (size_t e = 0; e < n; ++e) {
    const double x = logits[e];
    scores[e] = routing.score == RouterScore::kSigmoid        ? 1 / (1 + std::exp(-x))
                : routing.score == RouterScore::kSqrtSoftplus ? std::sqrt(std::log1p(std::exp(x)))
                                                              : std::exp(x) / sum;
    merits[e] = scores[e] + (bias.empty() ? 0.0 : bias[e]);
  }
  std::vector<std::pair<double, int>> groups;
  for (int g = 0; g < routing.n_groups; ++g) {
    const auto begin = merits.begin() + static_cast<long>(per_group) * g;
    std::vector<double> sorted(begin, begin + static_cast<long>(per_group));
    std::ranges::sort(sorted, std::greater());
    groups.push_back(
        {-std::accumulate(sorted.begin(), sorted.begin() + routing.group_top, 0.0), g});
  }
  std::ranges::sort(groups);
  std::vector<std::pair<double, int>> order;
  for (int i = 0; i < routing.n_active_groups; ++i) {
    for (size_t j = 0; j < per_group; ++j) {
      const size_t e = static_cast<size_t>(groups[static_cast<size_t>(i)].second) * per_group + j;
      order.push_back({-merits[e], static_cast<int>(e)});
    }
  }
  std::ranges::sort(order);
  Expected result;
  double total = routing.sum_eps;
  for (int k = 0; k < routing.n_active; ++k) {
    result.experts.push_back(order[static_cast<size_t>(k)].second);
    result.weights.push_back(scores[static_cast<size_t>(result.experts.back())]);
    total += result.weights.back();
  }
  total = std::max(total, double{routing.sum_min});
  for (double& weight : result.weights) weight *= routing.scale / (routing.normalize ? total : 1.0);
  return result;
}

TEST(Routing, EveryVariantIsItsDefinition) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::vector<ExpertRouting> variants;
  for (const RouterScore score :
       {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSqrtSoftplus}) {
    for (const int top : {1, 2}) {
      for (const bool normalize : {false, true}) {
        variants.push_back({.n_active = 3, .score = score, .normalize = normalize, .scale = 2.5f});
        variants.push_back({.n_active = 4,
                            .score = score,
                            .n_groups = 4,
                            .n_active_groups = 2,
                            .group_top = top,
                            .normalize = normalize,
                            .sum_eps = 1e-3f});
      }
    }
  }
  variants.push_back({.n_active = 3, .sum_min = 0.7f});
  for (const ExpertRouting& routing : variants) {
    for (int round = 0; round < 50; ++round) {
      std::vector<float> logits(16), bias(round % 2 == 0 ? 0 : 16);
      for (float& l : logits) l = normal(random);
      for (float& b : bias) b = normal(random) * 0.3f;
      std::vector<ExpertChoice> got(static_cast<size_t>(routing.n_active));
      choose_experts(logits.data(), 16, routing, bias.empty() ? nullptr : bias.data(), got.data());
      const Expected want = expected(logits, routing, bias);
      for (size_t k = 0; k < got.size(); ++k) {
        EXPECT_EQ(got[k].expert, want.experts[k]);
        EXPECT_NEAR(got[k].weight, want.weights[k], 1e-5);
      }
    }
  }
}

// A.X K2: an expert whose score and bias are below 0 loses to one of a group left out.
TEST(Routing, ExpertsLeftOutMayCompeteAsZeros) {
  const std::vector<float> logits{3.0f, 2.0f, 0.0f, -1.0f}, bias{0.0f, -2.0f, 0.0f, 0.0f};
  ExpertRouting routing{.n_active = 2,
                        .score = RouterScore::kSigmoid,
                        .n_groups = 2,
                        .n_active_groups = 1,
                        .group_top = 1,
                        .normalize = false};
  std::vector<ExpertChoice> got(2);
  choose_experts(logits.data(), 4, routing, bias.data(), got.data());
  EXPECT_EQ(got[0].expert, 0);
  EXPECT_EQ(got[1].expert, 1);
  routing.left_out_as_zero = true;
  choose_experts(logits.data(), 4, routing, bias.data(), got.data());
  EXPECT_EQ(got[0].expert, 0);
  EXPECT_EQ(got[1].expert, 2);
  EXPECT_NEAR(got[1].weight, 0.5f, 1e-6);
}

TEST(Routing, SparseMixerWeighsAmongTheNearThatAreLeft) {
  const std::vector<float> logits{1.0f, 2.0f, 1.98f, -3.0f};
  std::vector<ExpertChoice> got(2);
  const ExpertRouting routing{
      .score = RouterScore::kSparseMixer, .normalize = false, .jitter = 0.01f};
  choose_experts(logits.data(), 4, routing, nullptr, got.data());
  EXPECT_EQ(got[0].expert, 1);
  EXPECT_EQ(got[1].expert, 2);
  EXPECT_NEAR(got[0].weight, 1 / (1 + std::exp(-0.02)), 1e-5);
  EXPECT_NEAR(got[1].weight, 1.0, 1e-6);
}

// Large logits of either sign keep their precision.
TEST(Routing, GivenExpertsAreWeighedByTheirScores) {
  const std::vector<float> logits{40.0f, -30.0f, 0.5f, 2.0f};
  const std::vector<float> chosen{3, 1};
  const ExpertRouting routing{.score = RouterScore::kSqrtSoftplus, .normalize = false, .scale = 2};
  std::vector<ExpertChoice> got(2);
  weigh_experts(logits.data(), 4, routing, chosen.data(), got.data());
  EXPECT_EQ(got[0].expert, 3);
  EXPECT_EQ(got[1].expert, 1);
  EXPECT_NEAR(got[0].weight, 2 * std::sqrt(std::log1p(std::exp(2.0))), 1e-5);
  EXPECT_NEAR(got[1].weight, 2 * std::exp(-15.0), 1e-11);
  const std::vector<float> first{0, 2};
  const ExpertRouting normal{.score = RouterScore::kSqrtSoftplus, .sum_eps = 1e-20f};
  weigh_experts(logits.data(), 4, normal, first.data(), got.data());
  const double a = std::sqrt(40.0), b = std::sqrt(std::log1p(std::exp(0.5)));
  EXPECT_NEAR(got[0].weight, a / (a + b), 1e-6);
  EXPECT_NEAR(got[1].weight, b / (a + b), 1e-6);
}

TEST(Routing, ATieGoesToTheFirst) {
  const std::vector<float> logits(8, 0.25f);
  std::vector<ExpertChoice> got(2);
  choose_experts(logits.data(), 8, {.n_active = 2}, nullptr, got.data());
  EXPECT_EQ(got[0].expert, 0);
  EXPECT_EQ(got[1].expert, 1);
  EXPECT_FLOAT_EQ(got[0].weight, 0.5f);
}

}  // namespace
}  // namespace penstock
