// penstock bench --ladder: measures the engine with its optimizations added one by one.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "penstock/engine_config.h"

namespace CLI {
class App;
}

namespace penstock {

// A rung of the ladder: the optimizations of all earlier rungs and one more.
struct LadderRung {
  std::string name;    // "+ KV cache"
  int n_requests = 1;  // number of concurrent requests
  // duration of a request, from its start to its last token
  double request_seconds = 0;
  double tokens_per_second = 0;  // throughput of all requests together
  // bytes of weights and of the requests' K and V
  int64_t memory_bytes = 0;
  double tokens_per_round = 1;  // tokens per round of speculation; 1: none
};

struct Ladder {
  explicit Ladder(CLI::App& app);
  // Measures the rungs, prints them and writes the plot. config: flags of the engine; shape: if not
  // empty, random weights of this shape instead of a model file.
  Status run(EngineConfig config, const std::string& shape, int repetitions, bool json) const;

  // Measures one request with and without speculation, alternating; prints a JSON object.
  Status run_pairs(EngineConfig config, const std::string& shape, const std::string& type,
                   int repetitions) const;

  void print_json(const std::string& name, const std::string& note,
                  const std::vector<LadderRung>& rungs) const;

  bool wanted = false, pairs_wanted = false;
  std::string svg;
  int tokens = 100, batch = 8, spec_nodes = 4;
  double acceptance = 0.7;
};

// Returns an SVG bar chart of the rungs' tokens/s.
std::string ladder_svg(const std::string& title, const std::vector<LadderRung>& rungs);

}  // namespace penstock
