// Whether a backend computes here what it should: a decoder layer of random weights against another backend, before anybody trusts it
// with a model.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ops/ops.h"

namespace penstock {

// Prompts and decoding of two sequences: products with weights of several types, norms, rotation, attention over a cache, experts,
// steps that may be recorded, draws. A few milliseconds on a GPU. Error: kInternal, which result is how far from the reference's; or
// what status() says.
Status self_test(Ops& ops, Ops& reference);

struct BackendChoice {
  std::string name;
  std::string why;      // not one of those before it; empty: it is the first
  bool faulty = false;  // one of those before it is there and failed its test
};
// The first of these backends, best first, that can be opened here and passes its test against the CPU; the last is taken untested.
BackendChoice choose_among(std::span<const std::string_view> names);

}  // namespace penstock
