#include "draft/static_tree.h"

#include <algorithm>
#include <cmath>
#include <queue>

namespace penstock {
namespace {

struct Later {
  bool operator()(const StaticTreeNode& a, const StaticTreeNode& b) const {
    if (a.reach != b.reach) return a.reach < b.reach;
    // among equals the shallower one, then the more likely one
    if (a.depth != b.depth) return a.depth > b.depth;
    return a.rank != b.rank ? a.rank > b.rank : a.parent > b.parent;
  }
};

}  // namespace

std::vector<StaticTreeNode> choose_tree(std::span<const std::vector<float>> accuracy,
                                        int max_nodes) {
  std::vector<StaticTreeNode> tree;
  std::priority_queue<StaticTreeNode, std::vector<StaticTreeNode>, Later> open;
  // A chosen node adds its next sibling and its first child as candidates: since shares fall by
  // rank, the next best node is always among them.
  const auto consider = [&](int parent, int depth, int rank, double parent_reach) {
    if (depth >= static_cast<int>(accuracy.size())) return;
    const std::vector<float>& shares = accuracy[static_cast<size_t>(depth)];
    if (rank >= static_cast<int>(shares.size())) return;
    const double reach = parent_reach * shares[static_cast<size_t>(rank)];
    if (reach > 0) {
      open.push({static_cast<int16_t>(parent), static_cast<int16_t>(depth),
                 static_cast<int16_t>(rank), reach});
    }
  };
  consider(-1, 0, 0, 1.0);
  while (!open.empty() && static_cast<int>(tree.size()) < max_nodes) {
    const StaticTreeNode node = open.top();
    open.pop();
    const double parent_reach =
        node.parent < 0 ? 1.0 : tree[static_cast<size_t>(node.parent)].reach;
    tree.push_back(node);
    consider(node.parent, node.depth, node.rank + 1, parent_reach);
    consider(static_cast<int>(tree.size()) - 1, node.depth + 1, 0, node.reach);
  }
  return tree;
}

double expected_tokens(std::span<const StaticTreeNode> tree, int n) {
  double tokens = 1;
  for (int i = 0; i < n && i < static_cast<int>(tree.size()); ++i)
    tokens += tree[static_cast<size_t>(i)].reach;
  return tokens;
}

std::vector<std::vector<float>> assumed_accuracy(int n_heads) {
  constexpr int kRanks = 8;
  std::vector<std::vector<float>> accuracy(static_cast<size_t>(n_heads));
  for (int depth = 0; depth < n_heads; ++depth) {
    const float first = 0.55f * std::pow(0.9f, static_cast<float>(depth));
    for (int rank = 0; rank < kRanks; ++rank) {
      accuracy[static_cast<size_t>(depth)].push_back(first *
                                                     std::pow(0.3f, static_cast<float>(rank)));
    }
  }
  return accuracy;
}

void TreeAccuracy::learn(int depth, int rank, bool right) {
  constexpr float kWeight = 0.02f;
  std::vector<float>& shares = shares_[static_cast<size_t>(depth)];
  const auto place = static_cast<size_t>(rank);
  float& share = shares[place];
  share += kWeight * ((right ? 1.0f : 0.0f) - share);
  if (place > 0) share = std::min(share, shares[place - 1]);
  for (size_t i = place + 1; i < shares.size(); ++i) shares[i] = std::min(shares[i], share);
}

}  // namespace penstock
