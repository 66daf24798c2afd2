// A chain draft of one sequence, made token by token: decides when to stop, and learns from the
// outcome.
#pragma once
#include <vector>

#include "draft/draft_prices.h"
#include "draft/drafter.h"

namespace penstock {

class ChainGuesses {
 public:
  void clear() { probabilities_.clear(), reach_.clear(), n_unweighed_ = 0; }
  // Whether add() uses the drafter's probability of its most likely token: only when that token is
  // what it proposes.
  static bool weighs(const DraftRequest& request) {
    return request.prices != nullptr && request.state->spec->greedy();
  }
  // Takes the drafter's probability of the node that was added to the tree last. Returns whether to
  // draft another token; when not, trailing nodes that do not pay were removed from the tree.
  bool add(float probability, const DraftRequest& request, const Confidence& confidence,
           DraftTree& tree);
  void learn(Confidence& confidence, int n_accepted);

 private:
  std::vector<float> probabilities_;  // [n] the drafter's probability of each node
  // [n] probability that all nodes up to this one are accepted
  std::vector<float> reach_;
  int n_unweighed_ = 0;
};

}  // namespace penstock
