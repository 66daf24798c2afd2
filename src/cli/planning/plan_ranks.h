// penstock plan --tensor-parallel-size, --pipeline-parallel-size, --data-parallel-size or --ranks:
// estimates the speed and memory of a model on several ranks.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/planning/rank_costs.h"

namespace CLI {
class App;
}

namespace penstock {

struct RanksPlan {
  explicit RanksPlan(CLI::App& app);

  // Prints a table, or one JSON object. host_memory: bytes of memory of each host; 0: unlimited.
  // Errors: kInvalidArgument, kUnsupported.
  Status run(const PlannedModel& model, int64_t host_memory, bool json) const;

  bool wanted() const {
    return n_ranks > 0 || !tensor.empty() || !pipeline.empty() || !data.empty();
  }

  std::vector<int> tensor, pipeline, data;
  // plan all combinations with this number of ranks; 0: the combinations of the lists
  int n_ranks = 0;
  // Batch to most_tokens: see PlannedLoad.
  int hosts = 1, batch = 1, candidates = 0, prompt_tokens = 0, most_tokens = 2048;
  // bandwidth and latency of a host's link; 0: not given
  double link_gbps = 0, link_us = 0;
  // memory bandwidth of one rank; 0: that of this machine, divided among its ranks
  double memory_gbps = 0;
  // compute rate of one rank; 0: computation is not counted
  double tflops = 0;
  // Step time of one rank with the whole model: "MS", or "ROWS=MS" for several row counts.
  std::vector<std::string> step_ms;

 private:
  struct Row;
  Status check() const;
  Result<Machines> machines() const;
  std::vector<Combination> combinations() const;
  Result<std::vector<Row>> rows(const PlannedModel& model, int64_t host_memory) const;
  void print(const PlannedModel& model, const std::vector<Row>& rows) const;
  void print_json(const PlannedModel& model, const std::vector<Row>& rows) const;
};

}  // namespace penstock
