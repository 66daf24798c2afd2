// Rank 0's part of opening a model that several ranks share: starting them, comparing what they
// loaded, joining their shares to one StepModel. With a single rank its own model is returned.
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

// Starts the other ranks and has them load the same model; null when the configuration has one
// rank. Fills in `config` model and threads. Errors: kUnsupported when the source is not made of
// files; those of start_ranks().
Result<std::unique_ptr<RankRun>> begin_run(const WeightSource& source, EngineConfig& config,
                                           RankTask task, const RunPlace& among = {});

// The ranks on this host: their number, and the bytes of weights in their memory together.
struct RanksHere {
  int n = 1;
  int64_t weight_bytes = 0;
};

// Waits until all ranks have loaded their shares, and checks that they are of the same file. ranks:
// null when there is only this one. weight_bytes: of this rank's share.
Result<RanksHere> meet_ranks(RankRun* ranks, const RankGrid& grid, uint64_t fingerprint,
                             int64_t weight_bytes);

// Returns the model with its backend and cache: `own` alone, or the one that all ranks share. Every
// rank gets a cache of n_blocks; the ranks' bytes are summed up in `info`.
Result<std::unique_ptr<StepModel>> with_ranks(std::unique_ptr<RankRun> ranks, const RankGrid& grid,
                                              std::unique_ptr<LoadedModel> own,
                                              std::vector<int> n_blocks, EngineInfo& info);

}  // namespace penstock
