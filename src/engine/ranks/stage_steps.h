// The steps of one stage of a pipeline: each takes its input from the stage before and gives its output to the one behind.
#pragma once
#include <vector>

#include "engine/compute/step_model.h"
#include "engine/ranks/rank_grid.h"
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

  // From now on every stage gives the streams before those of these layers that it has to the next, and the last has them all. Of a
  // model that taps layers.
  void keep_taps(std::span<const int> taps);
  // The whole step. Error: the run has failed, and nothing was computed.
  Status run(const Batch& batch);
  // Of the last stage, of a token of the last step: the streams side by side in the order of the taps; without taps the model's state().
  std::span<const float> state(int token);

 private:
  std::span<const float> tapped(int tap, int token);
  void join_taps();
  Status take_input(const Batch& batch);
  Status give_output();

  Communicator& ranks_;
  LoadedModel& model_;
  const int before_, behind_;  // ranks, or -1
  std::vector<std::byte> input_, output_;
  std::vector<int>
      by_layer_;  // taps in the order of layers, in which they go from stage to stage: their places
  int n_before_ = 0, n_own_ = 0;  // of by_layer_ the first are of stages before, then come this one's
  int n_tokens_ = 0;              // of the last step
  std::vector<float> states_;     // of the last stage, in the order of the taps
};

}  // namespace penstock
