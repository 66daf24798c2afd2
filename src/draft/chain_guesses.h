// The draft of one sequence that is guessed token by token: when to stop, and what was learned from it.
#pragma once
#include <vector>

#include "draft/draft_prices.h"
#include "draft/drafter.h"

namespace penstock {

class ChainGuesses {
 public:
  void clear() { probabilities_.clear(), reach_.clear(), n_unweighed_ = 0; }
  // Whether the drafter's probability of its likeliest token counts: where the likeliest is what it proposes.
  static bool weighs(const DraftRequest& request) {
    return request.prices != nullptr && request.state->spec->greedy();
  }
  // Of the node that was added to the tree last. Whether to guess another one; when not, nodes that do not
  // pay are cut off the tree.
  bool add(float probability, const DraftRequest& request, const Confidence& confidence, DraftTree& tree);
  void learn(Confidence& confidence, int n_accepted);

 private:
  std::vector<float> probabilities_;  // [n] the drafter's own
  std::vector<float> reach_;          // [n] of all up to the node
  int n_unweighed_ = 0;
};

}  // namespace penstock
