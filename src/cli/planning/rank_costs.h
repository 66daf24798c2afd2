// What a decode step of one model over many ranks costs, and a prompt alone, from the model's shape and the machines' numbers:
// tensor x pipeline x data parallelism (docs/parallel.md, "What it would give").
//
// A rank reads its share of the weights and of the cache at its memory's bandwidth, or computes for as long as its share of the
// operations takes, if that is more. Then come the sums. One of b bytes over N ranks on H hosts costs
//   all to all:    rounds(H) latencies, (N - 1) b bytes to each rank,
//   or by parts:   2 rounds(H) latencies, 2 (N - 1) / N b bytes to each rank,
// with rounds(H) = ceil(log2(H)), at least 1, and the ranks of a host sharing its link. On one host the cheaper counts, between hosts the
// one that src/parallel/mpi_communicator.cc takes, in pieces of 1 MiB, each with its latencies. Beside the sums: the batch from rank
// 0, the logits or the candidates of a draw, and in a pipeline the stream from stage to stage, over three latencies where it is longer
// than 1 MiB: OpenMPI's TCP asks first whether it may come. Of b sequences a pipeline of P stages has min(b, P) steps under way, so
// that a token takes
//   max(steps x the busiest stage, one step through all stages and the messages between them).
// A prompt is one step of all its tokens, or of as many as a step takes; in a pipeline parts that follow one another through the
// stages, as StepLoop::share_of_stage() cuts them.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/stages.h"

namespace penstock {

struct PlannedModel {
  std::string name;
  const ModelConfig& config;
  double bytes_per_weight;
  int64_t tokens;  // of a sequence
  CacheTypes cache;
  int block_size;
};

// Bytes of K and V that a sequence of `tokens` keeps: whole blocks, and in windowed layers no more than the window
// (plus the block that is being filled). And the state of recurrent layers, however long it is.
int64_t sequence_bytes(const CacheSpec& spec, int64_t tokens);

// How many ranks share each layer, how many stages follow one another, and how many such engines there are.
struct Combination {
  int tensor = 1, stages = 1, engines = 1;
  int64_t of_engine() const { return int64_t{tensor} * stages; }
  int64_t ranks() const { return of_engine() * engines; }
  std::string text() const;
};

struct Machines {
  int hosts = 1;
  double link_bytes_per_second = 0, link_seconds = 0;  // of a host, one way, with what its system takes
  double rank_bytes_per_second = 0;                    // of memory
  double rank_operations_per_second = 0;               // 0: reading is all that takes time
  std::vector<std::pair<int, double>>
      step_seconds;  // rows, time of one rank with the whole model, ascending; empty: by the above
};

struct RankCosts {
  Combination combination;
  double weight_bytes = 0, kv_token_bytes = 0,
         cache_bytes = 0;      // of the rank that has most; the cache of all its sequences
  int sums = 0, messages = 0;  // that a token waits for; sums are messages too
  double wire_bytes = 0;       // that a rank gives for a token
  double compute_seconds = 0;  // of the busiest rank, for a token of every sequence
  double step_seconds = 0;     // a token of every sequence
  double prompt_seconds = 0;   // a prompt alone; 0: not asked for
};

struct PlannedLoad {
  int batch = 1;           // sequences that decode
  int candidates = 0;      // that a draw needs of each rank; 0: all logits
  int prompt_tokens = 0;   // of a prompt alone; 0: none
  int most_tokens = 2048;  // in a step
};

class RankPlanner {
 public:
  // All outlive this.
  RankPlanner(const PlannedModel& model, const Machines& machines, const PlannedLoad& load)
      : model_(model), machines_(machines), load_(load) {}

  // Error: kInvalidArgument, ranks that cannot stand on the hosts like this; kUnsupported, layers that cannot be cut like this.
  Result<RankCosts> estimate(const Combination& combination) const;

 private:
  struct Share;
  struct StageCosts;
  struct Stream {
    double seconds = 0;
    bool asked = false;  // comes when its stage is ready for it, not while that computes
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
  Stream stream_to(const Combination& combination, const std::vector<Shard::Range>& layers, int stage,
                   int rows) const;
  double prompt_seconds(const Combination& combination, const std::vector<Shard::Range>& layers) const;
  int per_host(const Combination& combination) const;

  const PlannedModel& model_;
  const Machines& machines_;
  const PlannedLoad load_;
};

}  // namespace penstock
