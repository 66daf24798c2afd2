// The steps of one stage of a pipeline: each takes its input from the stage before and gives its output to the one behind.
#pragma once
#include <vector>

#include "engine/ranks/rank_grid.h"
#include "engine/steps/step_model.h"
#include "parallel/communicator.h"

namespace penstock {

class StageSteps {
 public:
  // All outlive this.
  StageSteps(Communicator& ranks, const RankGrid& grid, LoadedModel& model)
      : ranks_(ranks),
        model_(model),
        before_(grid.before(ranks.rank())),
        behind_(grid.behind(ranks.rank())) {}

  // The whole step. Error: the run has failed, and nothing was computed.
  Status run(const Batch& batch);

 private:
  Status take_input(const Batch& batch);
  Status give_output(const Batch& batch);

  Communicator& ranks_;
  LoadedModel& model_;
  const int before_, behind_;  // ranks, or -1
  std::vector<std::byte> input_, output_;
};

}  // namespace penstock
