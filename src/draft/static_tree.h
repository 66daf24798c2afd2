// Static draft trees: the shape of a tree is chosen once from measured accuracies, which say which
// ranks of which heads are worth a node.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

struct StaticTreeNode {
  // index of the parent node, or -1: a child of the sequence's last token
  int16_t parent = -1;
  int16_t depth = 0;  // 0: proposed by the first head
  int16_t rank = 0;   // 0: the head's most likely token
  // probability that the node and all its ancestors are right
  double reach = 0;
};

// Chooses a tree: adds the node with the greatest reach until there are max_nodes or all others
// have reach 0. Every prefix of the result is the best tree of its size. A parent comes before its
// children, a lower rank before its siblings of higher rank. accuracy[d][r]: probability that the
// token of rank r at depth d is right when its parent is.
std::vector<StaticTreeNode> choose_tree(std::span<const std::vector<float>> accuracy,
                                        int max_nodes);

// Returns the expected tokens of a round with the first n nodes: 1 + the sum of their reach.
double expected_tokens(std::span<const StaticTreeNode> tree, int n);

// Returns default accuracies for heads without measurements: falling with depth and rank, similar
// to those of trained heads.
std::vector<std::vector<float>> assumed_accuracy(int n_heads);

// Accuracies for choosing a tree, which are updated by the outcomes of drafts.
class TreeAccuracy {
 public:
  // shares: measured accuracies, [depth][rank].
  explicit TreeAccuracy(std::vector<std::vector<float>> shares) : shares_(std::move(shares)) {}
  std::span<const std::vector<float>> shares() const { return shares_; }
  // Learns whether the token of this depth and rank was right, given that its parent was. Ranks of
  // the same depth that are never tried are scaled with it, and shares stay in descending order of
  // rank.
  void learn(int depth, int rank, bool right);

 private:
  std::vector<std::vector<float>> shares_;
};

}  // namespace penstock
