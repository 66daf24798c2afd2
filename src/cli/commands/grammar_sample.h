// Texts drawn at random from what a grammar allows: input for whoever reads such texts, and a test of the grammar.
#pragma once
#include <memory>
#include <random>
#include <string>

#include "grammar/grammar.h"

namespace penstock {

// Draws tokens uniformly from the masks, as a model does that knows nothing.
class GrammarSampler {
 public:
  // wander: tokens after which the texts turn to their ends, as far as the grammar lets them.
  GrammarSampler(std::shared_ptr<const grammar::Grammar> grammar, uint64_t seed, int wander, int max_tokens);

  struct Text {
    std::string text;
    bool complete = false;  // false: max_tokens came first, or (a defect) no token was allowed
    bool dead_end = false;
    std::string failure = {};  // why it could not go on: following it takes too much work
  };
  Text draw();

 private:
  TokenId choose(const std::vector<uint32_t>& mask, bool to_the_end);
  TokenId any_of(const std::vector<uint32_t>& mask);

  std::shared_ptr<const grammar::Grammar> grammar_;
  std::mt19937_64 random_;
  const int wander_, max_tokens_;
  std::vector<TokenId> closing_;  // tokens that lead to ends, the best first
};

}  // namespace penstock
