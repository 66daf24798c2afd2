// The greedy construction against every tree there is.
#include "draft/static_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace penstock {
namespace {

using ::testing::ElementsAre;

std::vector<int> parents(const std::vector<StaticTreeNode>& tree) {
  std::vector<int> result;
  for (const StaticTreeNode& node : tree) result.push_back(node.parent);
  return result;
}

// The greatest expected tokens of any tree of n nodes: every set of paths that is closed under
// parents, where a node is the ranks on its way.
double best_of_all(const std::vector<std::vector<float>>& accuracy, int n) {
  struct Path {
    std::vector<int> ranks;
    double reach;
  };
  std::vector<Path> all;
  const std::function<void(Path)> grow = [&](const Path& at) {
    if (at.ranks.size() == accuracy.size()) return;
    for (size_t r = 0; r < accuracy[at.ranks.size()].size(); ++r) {
      Path next = at;
      next.ranks.push_back(static_cast<int>(r));
      next.reach *= accuracy[at.ranks.size()][r];
      all.push_back(next);
      grow(next);
    }
  };
  grow({{}, 1.0});
  double best = 0;
  for (uint32_t set = 0; set < (1u << all.size()); ++set) {
    if (std::popcount(set) != n) continue;
    double tokens = 1;
    bool closed = true;
    for (size_t i = 0; i < all.size() && closed; ++i) {
      if ((set >> i & 1) == 0) continue;
      tokens += all[i].reach;
      std::vector<int> up = all[i].ranks;
      up.pop_back();
      if (up.empty()) continue;
      closed = false;
      for (size_t j = 0; j < all.size(); ++j) closed |= (set >> j & 1) != 0 && all[j].ranks == up;
    }
    if (closed) best = std::max(best, tokens);
  }
  return best;
}

TEST(StaticTree, IsAChainWhereOnlyFirstRanksCount) {
  const std::vector<std::vector<float>> accuracy = {{0.9f}, {0.8f}, {0.7f}};
  const auto tree = choose_tree(accuracy, 10);
  EXPECT_THAT(parents(tree), ElementsAre(-1, 0, 1));
  EXPECT_NEAR(expected_tokens(tree, 3), 1 + 0.9 + 0.72 + 0.504, 1e-6);
  EXPECT_NEAR(expected_tokens(tree, 2), 1 + 0.9 + 0.72, 1e-6);
}

TEST(StaticTree, TakesTheGreatestReachFirst) {
  // 0.5 | 0.3 (second rank) | 0.5 * 0.5 | 0.3 * 0.5 | 0.5 * 0.2
  const std::vector<std::vector<float>> accuracy = {{0.5f, 0.3f}, {0.5f, 0.2f}};
  const auto tree = choose_tree(accuracy, 5);
  EXPECT_THAT(parents(tree), ElementsAre(-1, -1, 0, 1, 0));
  EXPECT_EQ(tree[1].rank, 1);
  EXPECT_EQ(tree[4].rank, 1);
  EXPECT_EQ(tree[4].depth, 1);
}

TEST(StaticTree, EveryFirstPartIsTheBestTreeOfItsSize) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> share(0.05f, 1.0f);
  for (int round = 0; round < 8; ++round) {
    std::vector<std::vector<float>> accuracy = {{}, {}, {}};
    const size_t ranks[] = {3, 2, 1};  // 3 + 6 + 6 nodes
    for (size_t d = 0; d < accuracy.size(); ++d) {
      float left = 1;
      for (size_t r = 0; r < ranks[d]; ++r) accuracy[d].push_back(left *= 0.6f * share(random));
    }
    const auto tree = choose_tree(accuracy, 15);
    for (int n = 1; n <= 6; ++n)
      EXPECT_NEAR(expected_tokens(tree, n), best_of_all(accuracy, n), 1e-6) << n;
  }
}

TEST(StaticTree, ParentsComeFirstAndBrothersDiffer) {
  const auto tree = choose_tree(assumed_accuracy(4), 63);
  ASSERT_EQ(tree.size(), 63u);
  for (size_t i = 0; i < tree.size(); ++i) {
    EXPECT_LT(tree[i].parent, static_cast<int>(i));
    EXPECT_EQ(tree[i].depth,
              tree[i].parent < 0 ? 0 : tree[static_cast<size_t>(tree[i].parent)].depth + 1);
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(tree[i].parent == tree[j].parent && tree[i].rank == tree[j].rank)
          << i << " " << j;
    }
    EXPECT_LE(tree[i].reach, i > 0 ? tree[i - 1].reach : 1.0);
  }
}

TEST(StaticTree, NoChanceNoNode) {
  EXPECT_TRUE(choose_tree(std::vector<std::vector<float>>{{0.0f, 0.0f}}, 5).empty());
  EXPECT_TRUE(choose_tree({}, 5).empty());
  EXPECT_TRUE(choose_tree(assumed_accuracy(2), 0).empty());
}

}  // namespace
}  // namespace penstock
