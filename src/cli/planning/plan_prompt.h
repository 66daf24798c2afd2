// penstock plan --first-token: time of a long prompt on this machine, and of decoding behind it, from
// measured steps behind a few depths.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/result.h"
#include "cli/bench/step_times.h"

namespace CLI {
class App;
}

namespace penstock {

// Returns the depths that are measured for a prompt: none, an eighth, a quarter, a half of it, and
// that of its last chunk; ascending, multiples of the chunk. REQUIRES: n_tokens >= 1, chunk >= 1.
std::vector<int> measured_depths(int n_tokens, int chunk);
// Returns the seconds of a prompt in chunks, whose times lie on straight lines between the measured
// depths; the last chunk may be a part of one. REQUIRES: times are not empty and ascend by depth.
double prompt_seconds(int n_tokens, int chunk, const std::vector<DepthTimes>& times);

struct PromptPlan {
  explicit PromptPlan(CLI::App& app);

  struct Outcome {
    int n_tokens = 0, chunk = 0;
    double seconds = 0;  // of the prompt
    struct Row {
      DepthTimes times;
      double bytes = 0;  // that a token of decoding reads: active weights and the cache
    };
    std::vector<Row> rows;
    double read_bytes_per_second = 0;  // what memory gives
  };
  // spec: of the model's cache, whose states have type `states`. Errors: those of
  // measure_depth_times().
  Result<Outcome> plan(const WeightSource& source, const CacheSpec& spec, StateDType states,
                       int n_tokens) const;
  static void print(const Outcome& result);
  static nlohmann::json json(const Outcome& result);

  bool wanted = false;
};

}  // namespace penstock
