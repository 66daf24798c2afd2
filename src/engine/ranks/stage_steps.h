// The steps of one stage of a pipeline: each receives its input from the previous stage and sends
// its output to the next.
#pragma once
#include <vector>

#include "engine/compute/step_model.h"
#include "engine/ranks/rank_grid.h"
#include "parallel/communicator.h"

namespace penstock {

class StageSteps {
 public:
  // `ranks` and `model` must outlive this.
  StageSteps(Communicator& ranks, const RankGrid& grid, LoadedModel& model)
      : ranks_(ranks),
        model_(model),
        before_(grid.before(ranks.rank())),
        behind_(grid.behind(ranks.rank())) {}

  // Makes all further steps pass on the residual streams before the layers `taps`: each stage adds
  // those of its own layers, so that the last stage has all of them.
  void keep_taps(std::span<const int> taps);
  // Runs the whole step of this stage: receive, compute, send. Error: the run has failed, and
  // nothing was computed.
  Status run(const Batch& batch);
  // On the last stage, for a token of the last step: the tapped streams side by side in the order
  // of the taps; without taps the model's state().
  std::span<const float> state(int token);

 private:
  std::span<const float> tapped(int tap, int token);
  void join_taps();
  Status take_input(const Batch& batch);
  Status give_output();

  Communicator& ranks_;
  LoadedModel& model_;
  const int before_, behind_;  // ranks of the neighbouring stages, or -1
  std::vector<std::byte> input_, output_;
  // Indices of the taps in ascending order of their layers, the order in which streams are sent.
  std::vector<int> by_layer_;
  int n_before_ = 0,
      // leading entries of by_layer_ of earlier stages, and of this one after them
      n_own_ = 0;
  int n_tokens_ = 0;  // tokens of the last step
  // on the last stage: tapped streams of the last step, in the order of the taps
  std::vector<float> states_;
};

}  // namespace penstock
