// penstock plan --tensor-parallel-size, --pipeline-parallel-size, --data-parallel-size or --ranks: what several ranks would bring.
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

  // Prints the table, or one JSON object. host_memory: bytes of each host, 0 = whatever is needed. Errors: kInvalidArgument,
  // kUnsupported.
  Status run(const PlannedModel& model, int64_t host_memory, bool json) const;

  bool wanted() const { return n_ranks > 0 || !tensor.empty() || !pipeline.empty() || !data.empty(); }

  std::vector<int> tensor, pipeline, data;
  int n_ranks = 0;  // all combinations of so many; 0: those of the lists
  int hosts = 1, batch = 1, candidates = 0, prompt_tokens = 0, most_tokens = 2048;  // as PlannedLoad
  double link_gbps = 0, link_us = 0;                                                // of a host; 0: not given
  double memory_gbps = 0;            // gigabytes per second of one rank; 0: this machine's, by its ranks
  double tflops = 0;                 // of one rank; 0: not counted
  std::vector<std::string> step_ms;  // of one rank that has the whole model: "MS", or "ROWS=MS" for several

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
