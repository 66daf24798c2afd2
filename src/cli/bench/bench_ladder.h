// penstock bench --ladder: one request after the other gets what makes an engine fast.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "penstock/engine_config.h"

namespace CLI {
class App;
}

namespace penstock {

// A rung: everything of the rungs before it and one thing more.
struct LadderRung {
  std::string name;              // "+ KV cache"
  int n_requests = 1;            // at a time
  double request_seconds = 0;    // from the start to the last token of a request
  double tokens_per_second = 0;  // of all requests
  int64_t memory_bytes = 0;      // weights, and K and V of the requests
  double tokens_per_round = 1;   // of speculation
};

struct Ladder {
  explicit Ladder(CLI::App& app);
  // Measures, prints and draws. `config` has the engine's flags; `shape` instead of a model file when not
  // empty.
  Status run(EngineConfig config, const std::string& shape, int repetitions, bool json) const;

  // One request without and with speculation, in turn; prints a JSON object.
  Status run_pairs(EngineConfig config, const std::string& shape, const std::string& type,
                   int repetitions) const;

  bool wanted = false, pairs_wanted = false;
  std::string svg;
  int tokens = 100, batch = 8, spec_nodes = 4;
  double acceptance = 0.7;
};

// A drawing of the rungs' tokens/s, one bar each.
std::string ladder_svg(const std::string& title, const std::vector<LadderRung>& rungs);

}  // namespace penstock
