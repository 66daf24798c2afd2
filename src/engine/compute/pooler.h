// Pools the states of one sequence, added token by token, into vectors.
#pragma once
#include <span>
#include <vector>

#include "penstock/embed.h"

namespace penstock {

class Pooler {
 public:
  Pooler(std::span<const Pooling> poolings, int dim)
      : poolings_(poolings), dim_(dim), sums_(poolings.size()) {}
  // Adds the state [dim] of the next token.
  void add(std::span<const float> state);
  // One vector [dim] for each pooling, one after the other. REQUIRES: at least one state.
  std::vector<float> result() const;

 private:
  std::span<const Pooling> poolings_;
  int dim_;
  int n_ = 0;
  // [poolings][dim] sum so far, or the state or maximum to return
  std::vector<std::vector<double>> sums_;
};

}  // namespace penstock
