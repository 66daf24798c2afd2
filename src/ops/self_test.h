// Self test of a backend: a decoder layer of random weights is compared with another backend before
// a model uses it.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ops/ops.h"

namespace penstock {

// Runs prompts and decoding of two sequences: products with weights of several types, norms,
// rotation, attention over a cache, experts, steps that may be recorded, draws. Takes a few
// milliseconds on a GPU. Error: kInternal with the result that differs and by how much, or the
// error of status().
Status self_test(Ops& ops, Ops& reference);

struct BackendChoice {
  std::string name;
  // reason why no earlier backend was chosen; empty: it is the first
  std::string why;
  // an earlier backend is available and failed its test
  bool faulty = false;
};
// Returns the first of these backends, ordered from best to worst, that can be opened and passes
// its test against the CPU. The last one is not tested.
BackendChoice choose_among(std::span<const std::string_view> names);

}  // namespace penstock
