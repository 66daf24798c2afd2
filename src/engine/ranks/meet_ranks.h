// Rank 0's way from what each rank has loaded to one model; without other ranks it is its own.
#pragma once
#include <memory>
#include <vector>

#include "engine/compute/step_model.h"
#include "engine/ranks/rank_grid.h"
#include "engine/ranks/rank_worker.h"
#include "formats/weight_source.h"
#include "parallel/rank_run.h"
#include "penstock/engine.h"

namespace penstock {

// The ranks beside this one, on their way to the same model; null: there are none. `config` gets what was automatic.
Result<std::unique_ptr<RankRun>> begin_run(const WeightSource& source, EngineConfig& config, RankTask task,
                                           const RunPlace& among = {});

// What the ranks of this host have in memory of the weights.
struct RanksHere {
  int n = 1;
  int64_t weight_bytes = 0;
};

// All ranks have loaded their shares of the same file. ranks: null where there is only this one, which has weight_bytes.
Result<RanksHere> meet_ranks(RankRun* ranks, const RankGrid& grid, uint64_t fingerprint,
                             int64_t weight_bytes);

// The model with its backend and cache, here or on all ranks, of which all get n_blocks; sums the ranks' bytes up in `info`.
Result<std::unique_ptr<StepModel>> with_ranks(std::unique_ptr<RankRun> ranks, const RankGrid& grid,
                                              std::unique_ptr<LoadedModel> own, std::vector<int> n_blocks,
                                              EngineInfo& info);

}  // namespace penstock
