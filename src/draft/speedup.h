// Estimates of speculation: tokens per round and speed-up from the acceptance rate and the measured
// costs.
//
// A round drafts k tokens and verifies them in one step of the target, which adds one token of its
// own. With independent acceptance a per token it yields 1 + a + … + a^k = (1 - a^(k+1)) / (1 - a)
// tokens.
#pragma once
#include <span>
#include <vector>

namespace penstock {

// Returns the expected tokens per round. REQUIRES: acceptance in [0, 1], length >= 0.
double expected_tokens(double acceptance, int length);
// Returns the expected tokens per round when acceptance depends on the depth: by_depth[i] is that
// of drafted token i given that all before it were accepted. The last value holds for greater
// depths; an empty list means 0.
double expected_tokens(std::span<const double> by_depth, int length);

// Costs in seconds. A round with k drafted tokens costs draft_round + k * draft_token +
// verify_seconds(k).
struct SpeculationCosts {
  double plain = 0;        // a step without drafts
  double draft_token = 0;  // per drafted token (a draft model's step)
  double draft_round = 0;  // per round (Medusa's heads, a look-up)
  // [i]: a step that verifies i drafted tokens; extrapolated with the last slope. Empty: always
  // `plain`.
  std::vector<double> verify = {};

  double verify_seconds(int length) const;
  double round_seconds(int length) const {
    return draft_round + draft_token * length + verify_seconds(length);
  }
};

struct SpeculationEstimate {
  int length = 0;  // drafted tokens per round
  double tokens_per_round = 1;
  double round_seconds = 0;
  double speedup = 1;  // relative to steps without drafts
};

// Estimates rounds of this length. Length 0 is plain decoding: speed-up 1, whatever the costs of
// drafting.
SpeculationEstimate estimate_speculation(std::span<const double> by_depth, int length,
                                         const SpeculationCosts& costs);
// Returns the estimate for the fastest length in [0, max_length]; the shortest among equals.
SpeculationEstimate best_speculation(std::span<const double> by_depth, int max_length,
                                     const SpeculationCosts& costs);

}  // namespace penstock
