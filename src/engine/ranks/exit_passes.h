// The passes of an early exit (draft/early_exit.cc) through the stages of a pipeline: the layers up to the exit in the stages that have
// them, then the output matrix in the last, which is rank 0's.
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
  // Of this rank; `ranks` outlives this. Error: kUnsupported where what goes from stage to stage is not the same behind the exit as
  // before the last stage.
  static Result<std::unique_ptr<ExitPasses>> make(Communicator& ranks, const RankGrid& grid,
                                                  const WeightSource& source, const Model& model,
                                                  int n_layers);
  // Rank 0: the others begin with the batch. Gives what this one goes on from (ForwardOptions::stage_input), until the next. REQUIRES:
  // steps that the others were told of before are done here.
  std::span<const float> begin(const Batch& batch);
  // Another rank's part. Whether the run has failed is seen next.
  void run(const Batch& batch, LoadedModel& model);

 private:
  ExitPasses(Communicator& ranks, int n_layers) : ranks_(ranks), n_layers_(n_layers) {}
  std::span<const float> take_input(const Batch& batch);

  Communicator& ranks_;
  const int n_layers_;
  bool takes_part_ = true;
  int before_ = -1, behind_ = -1;  // ranks
  int input_dim_ = 0;
  std::vector<std::byte> message_;
  std::vector<float> input_, output_;
};

}  // namespace penstock
