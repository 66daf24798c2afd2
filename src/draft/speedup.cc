#include "draft/speedup.h"

#include <algorithm>

namespace penstock {

double expected_tokens(double acceptance, int length) {
  return expected_tokens(std::span<const double>(&acceptance, 1), length);
}

double expected_tokens(std::span<const double> by_depth, int length) {
  // reached: probability that all drafted tokens so far are accepted
  double tokens = 1, reached = 1;
  for (int i = 0; i < length && !by_depth.empty(); ++i) {
    const size_t depth = std::min(static_cast<size_t>(i), by_depth.size() - 1);
    reached *= std::clamp(by_depth[depth], 0.0, 1.0);
    tokens += reached;
  }
  return tokens;
}

double SpeculationCosts::verify_seconds(int length) const {
  if (verify.empty()) return plain;
  const int last = static_cast<int>(verify.size()) - 1;
  const auto at = [&](int i) { return verify[static_cast<size_t>(i)]; };
  if (length <= last) return at(length);
  const double slope = last > 0 ? std::max(0.0, at(last) - at(last - 1)) : 0.0;
  return at(last) + slope * (length - last);
}

SpeculationEstimate estimate_speculation(std::span<const double> by_depth, int length,
                                         const SpeculationCosts& costs) {
  if (length <= 0) return {0, 1, costs.plain, 1};
  SpeculationEstimate estimate{length, expected_tokens(by_depth, length),
                               costs.round_seconds(length), 1};
  if (estimate.round_seconds > 0) {
    estimate.speedup = estimate.tokens_per_round * costs.plain / estimate.round_seconds;
  }
  return estimate;
}

SpeculationEstimate best_speculation(std::span<const double> by_depth, int max_length,
                                     const SpeculationCosts& costs) {
  SpeculationEstimate best = estimate_speculation(by_depth, 0, costs);
  for (int length = 1; length <= max_length; ++length) {
    const SpeculationEstimate one = estimate_speculation(by_depth, length, costs);
    if (one.speedup > best.speedup) best = one;
  }
  return best;
}

}  // namespace penstock
