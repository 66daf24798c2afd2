// Carries out what a plan says about whole blocks: between the cache and the swap space, and copies before a write.
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
  // swap: null if the scheduler has no swap space.
  BlockMover(StepModel& model, Scheduler& scheduler, SwapStore* swap, MetricsRecorder& metrics)
      : model_(model), scheduler_(scheduler), swap_(swap), metrics_(metrics) {}

  // Before the plan's step. A sequence whose blocks the swap space does not keep or give back loses its place in the plan.
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
