// The arrangement of a run's ranks: `stages` pipeline stages of `tensor` ranks each.
//
// The ranks of a stage have consecutive numbers. Rank 0 is in the last stage, which computes the
// logits that rank 0 samples from; ranks tensor to 2 * tensor - 1 are the first stage, the next
// ones the second, and so on.
#pragma once
#include "parallel/shard.h"
#include "penstock/engine_config.h"

namespace penstock {

struct RankGrid {
  int tensor = 1, stages = 1;

  int size() const { return tensor * stages; }
  Stage stage_of(int rank) const { return {(rank / tensor + stages - 1) % stages, stages}; }
  int rank_of(int stage, int column) const { return (stage + 1) % stages * tensor + column; }
  // The rank from which `rank` receives its stage's input, and the one to which it sends its
  // output; -1 = none.
  int before(int rank) const {
    return stage_of(rank).first() ? -1 : (rank + size() - tensor) % size();
  }
  int behind(int rank) const { return stage_of(rank).last() ? -1 : (rank + tensor) % size(); }
};

inline RankGrid grid_of(const EngineConfig& config) {
  return {config.tensor_parallel_size, config.pipeline_parallel_size};
}

}  // namespace penstock
