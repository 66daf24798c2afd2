// penstock plan --tensor-parallel-size: what several ranks would bring, from the model's shape and the machines' numbers.
//
// A decode step reads a rank's share of the weights and of the cache at the rank's memory bandwidth, then come the sums
// (docs/parallel.md). A sum of b bytes over N ranks on H hosts costs the cheaper of
//   everybody gets all shares:       rounds(H) latencies, (N - 1) b bytes to each rank,
//   each sums a part and shares it:  2 rounds(H) latencies, 2 (N - 1) / N b bytes to each rank,
// with rounds(H) = ceil(log2(H)), at least 1, and the ranks of a host sharing its link.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config.h"

namespace CLI {
class App;
}

namespace penstock {

struct RanksPlan {
  explicit RanksPlan(CLI::App& app);

  struct Model {
    std::string name;
    const ModelConfig& config;
    double bytes_per_weight;
    int64_t tokens;  // of a sequence
    KvDType kv_dtype;
    int block_size;
  };
  // Prints the table, or one JSON object. Errors: kInvalidArgument.
  Status run(const Model& model, bool json) const;

  bool wanted() const { return !sizes.empty(); }

  std::vector<int> sizes;  // numbers of ranks
  int hosts = 1, batch = 1;
  double link_gbps = 0, link_us = 0;  // of a host; 0: not given
  double memory_gbps = 0;             // gigabytes per second of one rank; 0: this machine's, by its ranks
  double step_ms = 0;                 // of one rank that has the whole model; 0: by memory_gbps

 private:
  struct Row;
  Status check() const;
  Result<double> memory_bytes_per_second(int ranks_per_host) const;
  double sum_seconds(double bytes, int n_ranks, int n_hosts) const;
  Row estimate(const Model& model, int n_ranks, double bytes_per_second) const;
};

}  // namespace penstock
