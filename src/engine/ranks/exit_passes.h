// Passes of the early-exit drafter (draft/early_exit.cc) through the stages of a pipeline: the
// layers up to the exit run in their stages, then the output matrix in the last stage, which is
// rank 0's.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/compute/step_model.h"
#include "engine/ranks/rank_grid.h"
#include "parallel/communicator.h"

namespace penstock {

class ExitPasses {
 public:
  // Makes this rank's part; `ranks` must outlive it. n_layers: layers up to the exit. Error:
  // kUnsupported when a stage's output after the exit layer has other dimensions than the last
  // stage's input.
  static Result<std::unique_ptr<ExitPasses>> make(Communicator& ranks, const RankGrid& grid,
                                                  const WeightSource& source, const Model& model,
                                                  int n_layers);
  // Rank 0: sends the batch to the other ranks and returns the input of its own stage
  // (ForwardOptions::stage_input), valid until the next call. REQUIRES: rank 0 has finished all
  // steps that were sent before.
  std::span<const float> begin(const Batch& batch);
  // Other ranks: computes this rank's part of a pass. Errors appear in the communicator's status().
  void run(const Batch& batch, LoadedModel& model);

 private:
  ExitPasses(Communicator& ranks, int n_layers) : ranks_(ranks), n_layers_(n_layers) {}
  std::span<const float> take_input(const Batch& batch);

  Communicator& ranks_;
  const int n_layers_;
  bool takes_part_ = true;
  // ranks of the stages before and after this one in a pass; -1 = none
  int before_ = -1, behind_ = -1;
  int input_dim_ = 0;
  std::vector<std::byte> message_;
  std::vector<float> input_, output_;
};

}  // namespace penstock
