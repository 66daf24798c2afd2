// Random texts of a grammar: test input for readers of such texts, and a test of the grammar.
#pragma once
#include <memory>
#include <random>
#include <string>

#include "grammar/grammar.h"

namespace penstock {

// Draws tokens uniformly from the masks, as a model with random weights would.
class GrammarSampler {
 public:
  // wander: number of tokens after which texts are steered to their ends, as far as the grammar
  // allows.
  GrammarSampler(std::shared_ptr<const grammar::Grammar> grammar, uint64_t seed, int wander,
                 int max_tokens);

  struct Text {
    std::string text;
    // false: max_tokens was reached, or (an error) no token was allowed
    bool complete = false;
    bool dead_end = false;
    // why the text could not continue: following it takes too much work; "": none
    std::string failure = {};
  };
  Text draw();

 private:
  TokenId choose(const std::vector<uint32_t>& mask, bool to_the_end);
  TokenId any_of(const std::vector<uint32_t>& mask);

  std::shared_ptr<const grammar::Grammar> grammar_;
  std::mt19937_64 random_;
  const int wander_, max_tokens_;
  std::vector<TokenId> closing_;  // tokens that lead to ends, best first
};

}  // namespace penstock
