// A model whose states are wanted (Embedder), on as many ranks as share it: it needs no scheduler, and no blocks that outlive a step.
// Rank 0 tells how many blocks the next steps need, then the steps.
//
// All that goes between rank 0 and the others are messages; those who share layers take their sums together, and each stage gives its
// streams to the one behind. Rank 0 is of the last stage.
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "engine/compute/step_model.h"
#include "engine/ranks/rank_grid.h"
#include "engine/ranks/rank_messages.h"
#include "engine/ranks/stage_steps.h"
#include "parallel/rank_run.h"

namespace penstock {

inline constexpr int kStateBlockTokens = 16;

// Rank 0's side, where there are others.
class StateRanks {
 public:
  // `own`: this rank's share, which outlives this.
  StateRanks(std::unique_ptr<RankRun> run, const RankGrid& grid, LoadedModel& own);
  ~StateRanks();

  // Ok, or why the run has ended; any thread.
  Status status() const { return run_->communicator().status(); }
  // As StepModel::communication().
  std::vector<CommunicatorUse> communication() const { return run_->communicator().uses(); }
  // How many steps are worth being told before the first of them is run.
  int n_at_once() const { return n_at_once_; }
  // A cache of so many blocks on all ranks, instead of the last.
  Status make_cache(std::span<const int> n_blocks);
  // The others begin this step behind those that they were told before.
  void tell(const Batch& batch);
  // This rank's part of the first step that was told and not run; its outputs are in `own` then.
  Status run(const Batch& batch);

 private:
  void send_to_all();

  const std::unique_ptr<RankRun> run_;
  LoadedModel& own_;
  const int n_at_once_;
  StageSteps steps_;
  MessageWriter message_;
};

// Another rank's side.
class StateWorker {
 public:
  explicit StateWorker(Communicator& ranks) : ranks_(ranks) {}
  Status load(const EngineConfig& config);
  // Until rank 0 ends the run.
  Status serve();

 private:
  Communicator& ranks_;
  std::unique_ptr<LoadedModel> model_;
  std::optional<StageSteps> steps_;
};

// `model` has a cache of so many blocks, instead of the last, or none.
Status make_state_cache(LoadedModel& model, std::span<const int> n_blocks);

}  // namespace penstock
