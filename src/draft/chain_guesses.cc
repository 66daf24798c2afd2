#include "draft/chain_guesses.h"

namespace penstock {

bool ChainGuesses::add(float probability, const DraftRequest& request, const Confidence& confidence,
                       DraftTree& tree) {
  const int n = tree.size();
  if (request.prices == nullptr) return n < request.max_nodes;
  // A token that was drawn says nothing about its chance: then all guesses are taken to be alike.
  if (!weighs(request)) {
    n_unweighed_ = n;
    return n < best_length(confidence.mean(), *request.prices, request.max_nodes);
  }
  probabilities_.push_back(probability);
  reach_.push_back((reach_.empty() ? 1.0f : reach_.back()) * confidence.right(probability));
  if (worth_another(n, reach_.back(), confidence.mean(), *request.prices, request.max_nodes))
    return true;
  tree.truncate(nodes_worth(reach_, *request.prices));
  probabilities_.resize(tree.tokens.size());
  return false;
}

void ChainGuesses::learn(Confidence& confidence, int n_accepted) {
  confidence.learn(probabilities_, n_accepted);
  confidence.learn_mean(n_unweighed_, n_accepted);
  clear();
}

}  // namespace penstock
