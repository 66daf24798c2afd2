// A model that several ranks share and that computes states (Embedder). It has no scheduler, and no
// blocks outlive a step: rank 0 sends the number of blocks that the next steps need, then the
// steps.
//
// Rank 0 and the others exchange messages only; ranks of one stage compute their all-reduces
// together, and each stage sends its streams to the next. Rank 0 is in the last stage.
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

// Rank 0's side of a run with several ranks.
class StateRanks {
 public:
  // own: this rank's share, which must outlive this.
  StateRanks(std::unique_ptr<RankRun> run, const RankGrid& grid, LoadedModel& own);
  ~StateRanks();

  // Ok, or the error for which the run has ended. Any thread.
  Status status() const { return run_->communicator().status(); }
  // As StepModel::communication().
  std::vector<CommunicatorUse> communication() const { return run_->communicator().uses(); }
  // Number of steps that should be in flight: sent by tell() before the first of them is run.
  int n_at_once() const { return n_at_once_; }
  // Replaces the cache on all ranks by one of n_blocks, per group.
  Status make_cache(std::span<const int> n_blocks);
  // Sends a step to the other ranks, which compute it after those sent before.
  void tell(const Batch& batch);
  // Computes this rank's part of the oldest step that was sent and not run; `own` then has its
  // outputs.
  Status run(const Batch& batch);

 private:
  void send_to_all();

  const std::unique_ptr<RankRun> run_;
  LoadedModel& own_;
  const int n_at_once_;
  StageSteps steps_;
  MessageWriter message_;
};

// The side of the other ranks.
class StateWorker {
 public:
  explicit StateWorker(Communicator& ranks) : ranks_(ranks) {}
  Status load(const EngineConfig& config);
  // Carries out rank 0's commands; returns when rank 0 ends the run.
  Status serve();

 private:
  Communicator& ranks_;
  std::unique_ptr<LoadedModel> model_;
  std::optional<StageSteps> steps_;
};

// Replaces the model's cache by one of n_blocks, per group. On an error the model has no cache.
Status make_state_cache(LoadedModel& model, std::span<const int> n_blocks);

}  // namespace penstock
