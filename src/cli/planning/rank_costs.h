// Estimates the time of a decode step, and of a single prompt, of a model on many ranks from the
// model's shape and the machines' properties: tensor x pipeline x data parallelism
// (docs/design/parallel.md, "How long will a step take?").
//
// A rank reads its share of the weights and of the cache at its memory's bandwidth, or computes its
// share of the operations, if that takes longer. Then the all-reduces (sums) follow. A sum of b
// bytes over N ranks on H hosts costs
//   all to all:    rounds(H) latencies, (N - 1) b bytes to each rank,
//   or by parts:   2 rounds(H) latencies, 2 (N - 1) / N b bytes to each rank,
// with rounds(H) = ceil(log2(H)), at least 1, and the ranks of a host sharing its link. On one host
// the cheaper way counts, between hosts the way that src/parallel/mpi_communicator.cc takes, in
// pieces of 1 MiB, each with its latencies. Further messages: the batch from rank 0, the logits or
// candidates of a draw, and in a pipeline the stream from stage to stage, which takes three
// latencies if it is longer than 1 MiB (OpenMPI's rendezvous protocol over TCP). With b sequences a
// pipeline of P stages runs min(b, P) steps at once, so that a token takes
//   max(steps x the busiest stage, one step through all stages and the messages between them).
// A prompt is computed in one step, or in several if it exceeds the tokens of a step; in a pipeline
// it is cut into parts that follow one another through the stages, as by
// StepLoop::share_of_stage().
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "model/blocks/config.h"
#include "model/load/stages.h"

namespace penstock {

struct PlannedModel {
  std::string name;
  const ModelConfig& config;
  double bytes_per_weight;
  int64_t tokens;  // tokens of a sequence
  CacheTypes cache;
  int block_size;
};

// Returns the bytes of a sequence's cache: K and V in whole blocks, in windowed layers at most of
// the window (plus the block that is being filled), and the state of recurrent layers, which does
// not depend on the length.
int64_t sequence_bytes(const CacheSpec& spec, int64_t tokens);

// A combination of tensor parallelism (ranks that share each layer), pipeline stages and engines
// (data parallelism).
struct Combination {
  int tensor = 1, stages = 1, engines = 1;
  int64_t of_engine() const { return int64_t{tensor} * stages; }
  int64_t ranks() const { return of_engine() * engines; }
  std::string text() const;
};

struct Machines {
  int hosts = 1;
  // Bandwidth and one-way latency of a host's link, including the system's overhead.
  double link_bytes_per_second = 0, link_seconds = 0;
  double rank_bytes_per_second = 0;  // memory bandwidth of a rank
  // compute rate of a rank; 0: only reading is counted
  double rank_operations_per_second = 0;
  // Measured step times of one rank with the whole model: (rows, seconds), ascending in rows;
  // empty: computed from the rates above.
  std::vector<std::pair<int, double>> step_seconds;
};

struct RankCosts {
  Combination combination;
  double weight_bytes = 0, kv_token_bytes = 0,
         // Bytes of the rank that has most; cache_bytes: the cache of all its sequences.
      cache_bytes = 0;
  // sums and messages that a token waits for; sums are messages too
  int sums = 0, messages = 0;
  double wire_bytes = 0;  // bytes that a rank sends for a token
  // compute time of the busiest rank for one token of every sequence
  double compute_seconds = 0;
  double step_seconds = 0;    // time of one token of every sequence
  double prompt_seconds = 0;  // time of a single prompt; 0: not requested
};

struct PlannedLoad {
  int batch = 1;  // number of sequences that decode
  // number of candidates that sampling needs of each rank; 0: all logits
  int candidates = 0;
  int prompt_tokens = 0;   // tokens of the single prompt; 0: none
  int most_tokens = 2048;  // maximum number of tokens in a step
};

class RankPlanner {
 public:
  // REQUIRES: all arguments outlive the planner.
  RankPlanner(const PlannedModel& model, const Machines& machines, const PlannedLoad& load)
      : model_(model), machines_(machines), load_(load) {}

  // Returns the costs of a combination. Errors: kInvalidArgument, when the ranks cannot be placed
  // on the hosts; kUnsupported, when the layers cannot be split this way.
  Result<RankCosts> estimate(const Combination& combination) const;

 private:
  struct Share;
  struct StageCosts;
  struct Stream {
    double seconds = 0;
    // arrives only when its stage is ready for it, not while the stage computes
    bool asked = false;
  };
  struct StepRows {
    int tokens = 1, outputs = 1;
  };
  Result<std::vector<Shard::Range>> stages(int n) const;
  Share share(Shard shard, Stage stage, Shard::Range layers, const StepRows& rows) const;
  StageCosts stage_costs(const Combination& combination, Stage stage, Shard::Range layers,
                         const StepRows& rows) const;
  double seconds(const Share& share, const StepRows& rows) const;
  double measured_seconds(int rows) const;
  double part_factor(int tokens, int before) const;
  double sum_seconds(double bytes, int n_ranks, int n_hosts) const;
  double gather_seconds(double bytes, int n_ranks, int n_hosts) const;
  double logit_seconds(int n_rows, int n_ranks, int n_hosts) const;
  double command_seconds(const Combination& combination) const;
  Stream stream_to(const Combination& combination, const std::vector<Shard::Range>& layers,
                   int stage, int rows) const;
  double prompt_seconds(const Combination& combination,
                        const std::vector<Shard::Range>& layers) const;
  int per_host(const Combination& combination) const;

  const PlannedModel& model_;
  const Machines& machines_;
  const PlannedLoad load_;
};

}  // namespace penstock
