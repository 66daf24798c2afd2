// Carries out a plan's operations on whole blocks: swaps between the cache and the swap space, and
// copies on write.
//
// Engine thread only.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/compute/step_model.h"
#include "engine/compute/swap_store.h"
#include "engine/requests/metrics_recorder.h"
#include "engine/schedule/scheduler.h"

namespace penstock {

class BlockMover {
 public:
  // swap: null when the scheduler has no swap space.
  BlockMover(StepModel& model, Scheduler& scheduler, SwapStore* swap, MetricsRecorder& metrics)
      : model_(model), scheduler_(scheduler), swap_(swap), metrics_(metrics) {}

  // Called before the plan's step. A sequence whose blocks cannot be swapped is taken out of the
  // plan and recomputed later.
  void carry_out(Plan& plan);

 private:
  void move_out(const SwapMove& move, Plan& plan);
  void move_in(const SwapMove& move, Plan& plan);
  void lose(Sequence& sequence, const Error& error, Plan& plan);
  std::span<std::byte> buffer_for(int group);

  StepModel& model_;
  Scheduler& scheduler_;
  SwapStore* const swap_;
  MetricsRecorder& metrics_;
  std::vector<std::byte> buffer_;  // one block
};

}  // namespace penstock
