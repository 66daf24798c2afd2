// Where the ranks of a run stand: `tensor` of them share each stage of a pipeline.
//
// Ranks of one stage are neighbours. Rank 0 is of the last stage, for that makes the logits, which it draws from; the first stage is
// that of the ranks behind it, and so on: what goes from stage to stage goes around.
#pragma once
#include "parallel/shard.h"
#include "penstock/engine_config.h"

namespace penstock {

struct RankGrid {
  int tensor = 1, stages = 1;

  int size() const { return tensor * stages; }
  Stage stage_of(int rank) const { return {(rank / tensor + stages - 1) % stages, stages}; }
  int rank_of(int stage, int column) const { return (stage + 1) % stages * tensor + column; }
  // The rank that gives this one its input, and the one that it gives its output; -1 = none.
  int before(int rank) const { return stage_of(rank).first() ? -1 : (rank + size() - tensor) % size(); }
  int behind(int rank) const { return stage_of(rank).last() ? -1 : (rank + tensor) % size(); }
};

inline RankGrid grid_of(const EngineConfig& config) {
  return {config.tensor_parallel_size, config.pipeline_parallel_size};
}

}  // namespace penstock
