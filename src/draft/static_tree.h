// The shape of a draft tree, chosen once from measured accuracies: which ranks of which heads are worth a
// node.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

struct StaticTreeNode {
  int16_t parent = -1;  // node, or -1: a child of the sequence's last token
  int16_t depth = 0;    // 0: proposed by the first head
  int16_t rank = 0;     // 0: the head's most likely token
  double reach = 0;     // chance that the node and all on the way to it are right
};

// accuracy[d][r]: chance that the token of rank r at depth d is right when its parent is. Adds the node with
// the greatest reach until there are max_nodes or no node has a chance: every first part of the result is the
// best tree of its size. A parent comes before its children, a lower rank before the higher ones beside it.
std::vector<StaticTreeNode> choose_tree(std::span<const std::vector<float>> accuracy, int max_nodes);

// Tokens of a round with the first n nodes: 1 + the sum of their reach.
double expected_tokens(std::span<const StaticTreeNode> tree, int n);

// Accuracies where nobody has measured any: falling with the depth and the rank, about as those of heads that
// were trained for a while.
std::vector<std::vector<float>> assumed_accuracy(int n_heads);

// The accuracies that a tree is chosen from, corrected by how often guesses turn out right.
class TreeAccuracy {
 public:
  // shares: as measured before, [depth][rank].
  explicit TreeAccuracy(std::vector<std::vector<float>> shares) : shares_(std::move(shares)) {}
  std::span<const std::vector<float>> shares() const { return shares_; }
  // A guess whose parent was right was right or wrong. The ranks that are not tried follow those of their
  // depth that are, and shares keep falling by rank.
  void learn(int depth, int rank, bool right);

 private:
  std::vector<std::vector<float>> shares_;
};

}  // namespace penstock
