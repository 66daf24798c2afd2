// The states of one sequence, as they come, into vectors.
#pragma once
#include <span>
#include <vector>

#include "penstock/embed.h"

namespace penstock {

class Pooler {
 public:
  Pooler(std::span<const Pooling> poolings, int dim)
      : poolings_(poolings), dim_(dim), sums_(poolings.size()) {}
  // Of the next token, [dim].
  void add(std::span<const float> state);
  // One vector [dim] for each pooling, one after the other. REQUIRES: at least one state.
  std::vector<float> result() const;

 private:
  std::span<const Pooling> poolings_;
  int dim_;
  int n_ = 0;
  std::vector<std::vector<double>> sums_;  // of each pooling, as far as it sums; else what it keeps
};

}  // namespace penstock
