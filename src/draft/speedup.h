// What speculation is worth: tokens per round and speed-up from the acceptance rate and the measured costs.
//
// A round drafts k tokens and verifies them in one step of the target, which adds one token of its own. With
// independent acceptance a per token it yields 1 + a + … + a^k = (1 - a^(k+1)) / (1 - a) tokens.
#pragma once
#include <span>
#include <vector>

namespace penstock {

// acceptance in [0, 1], length >= 0.
double expected_tokens(double acceptance, int length);
// The same when the chance depends on the depth: by_depth[i] is that of drafted token i given that all before
// it were accepted. The last one holds for greater depths; empty is 0.
double expected_tokens(std::span<const double> by_depth, int length);

// Seconds. A step without drafts costs plain; a round costs draft_round + k * draft_token + verify(k).
struct SpeculationCosts {
  double plain = 0;
  double draft_token = 0;  // for every drafted token (a draft model's step)
  double draft_round = 0;  // once (Medusa's heads, a look-up)
  // [i]: a step that verifies i drafted tokens; goes on with its last slope. Empty: plain.
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
  double speedup = 1;  // against steps without drafts
};

// length 0 is plain decoding: speed-up 1, whatever the costs of drafting.
SpeculationEstimate estimate_speculation(std::span<const double> by_depth, int length,
                                         const SpeculationCosts& costs);
// The fastest length in [0, max_length]; the shortest of equals.
SpeculationEstimate best_speculation(std::span<const double> by_depth, int max_length,
                                     const SpeculationCosts& costs);

}  // namespace penstock
