#include "engine/ranks/meet_ranks.h"

#include <algorithm>

#include "engine/ranks/pipeline_model.h"
#include "engine/ranks/pipeline_start.h"
#include "engine/ranks/shared_model.h"

namespace penstock {

Result<std::unique_ptr<RankRun>> begin_run(const WeightSource& source, EngineConfig& config,
                                           RankTask task, const RunPlace& among) {
  const RankGrid grid = grid_of(config);
  if (grid.size() == 1) return nullptr;
  if (source.files().empty()) {
    return errorf(ErrorCode::kUnsupported,
                  "{} {}: every rank reads its share of a file, and {} is none",
                  grid.stages > 1 ? "pipeline_parallel_size" : "tensor_parallel_size",
                  grid.stages > 1 ? grid.stages : grid.tensor, source.path().string());
  }
  config.model = source.path().string();
  ASSIGN_OR_RETURN(auto ranks, start_ranks(grid.size(), among));
  if (config.threads == 0) config.threads = std::max(1, static_cast<int>(ranks->cpus().size()));
  RETURN_IF_ERROR(tell_config(ranks->communicator(), config, task));
  if (grid.stages > 1) RETURN_IF_ERROR(ranks->communicator().form_groups(grid.tensor));
  return ranks;
}

Result<RanksHere> meet_ranks(RankRun* ranks, const RankGrid& grid, uint64_t fingerprint,
                             int64_t weight_bytes) {
  if (ranks == nullptr) return RanksHere{1, weight_bytes};
  const int n = ranks->n_here();
  if (grid.stages == 1) {
    RETURN_IF_ERROR(agree(ranks->communicator(), fingerprint));
    return RanksHere{n, n * weight_bytes};
  }
  ASSIGN_OR_RETURN(const auto shares,
                   hear_shares(ranks->communicator(), {fingerprint, weight_bytes}));
  RanksHere here{n, 0};
  for (size_t rank = 0; rank < static_cast<size_t>(n); ++rank)
    here.weight_bytes += shares[rank].weight_bytes;
  return here;
}

namespace {

// Returns the sizes of all ranks' shares, after all know n_blocks.
Result<std::vector<ShareSizes>> share_sizes(Communicator& ranks, const RankGrid& grid,
                                            const LoadedModel& own, std::vector<int>& n_blocks) {
  if (grid.stages > 1) {
    RETURN_IF_ERROR(tell_blocks(ranks, n_blocks));
    return hear_sizes(ranks, sizes_of(own.model(), own.cache()));
  }
  RETURN_IF_ERROR(share_blocks(ranks, n_blocks));
  return exchange_sizes(ranks, own.model(), own.cache());
}

}  // namespace

Result<std::unique_ptr<StepModel>> with_ranks(std::unique_ptr<RankRun> ranks, const RankGrid& grid,
                                              std::unique_ptr<LoadedModel> own,
                                              std::vector<int> n_blocks, EngineInfo& info) {
  if (ranks == nullptr) return own;
  auto& communicator = ranks->communicator();
  ASSIGN_OR_RETURN(auto sizes, share_sizes(communicator, grid, *own, n_blocks));
  for (size_t rank = 1; rank < sizes.size(); ++rank) {
    info.weight_bytes += sizes[rank].weight_bytes;
    info.active_weight_bytes += sizes[rank].active_weight_bytes;
    info.active_float_parameters += sizes[rank].active_float_weights;
  }
  info.kv_bytes *= grid.tensor;
  info.kv_bytes_per_token *= grid.tensor;
  info.n_threads *= communicator.size();
  if (grid.stages == 1)
    return std::make_unique<SharedModel>(std::move(ranks), std::move(own), std::move(sizes));
  return std::make_unique<PipelineModel>(std::move(ranks), grid, std::move(own), std::move(sizes));
}

}  // namespace penstock
