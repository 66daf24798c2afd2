// The projector of a tower: stages from patches' states to tokens' features.
#pragma once
#include <memory>
#include <vector>

#include "model/load/tensor_loader.h"
#include "model/tensors/weights.h"
#include "model/towers/tower_config.h"

namespace penstock {

class Projector {
 public:
  // places: rows of a unit; width: of the states that it reads.
  Status load(TensorLoader& tensors, const std::vector<ProjectorStage>& stages, int places,
              int width);
  int outputs() const { return outputs_; }
  int64_t bytes() const { return bytes_; }
  // x: [n_tokens * places, width], contiguous, patches unit after unit; not changed. The last unit may
  // have fewer rows where a stage joins units. Returns [n_tokens, outputs()].
  Tensor forward(Tensor x, Ops& ops) const;

 private:
  struct Stage {
    ProjectorStage what;
    NormWeights norm;
    LinearWeights linear, up;
  };
  Status load_stage(TensorLoader& tensors, int& width, Stage& stage);
  Result<LinearWeights> linear(TensorLoader& tensors, const ProjectorStage& stage,
                               const std::string& stem, int inputs);

  std::vector<Stage> stages_;
  int places_ = 1, outputs_ = 0;
  int64_t bytes_ = 0;
};

// Loads a matrix whose tensor may have more axes than two, as those of convolutions: [rows, cols]
// in the tensor's order. Error: kCorruptFile.
Result<FileMatrix> flat_matrix(TensorLoader& tensors, const std::string& name, int rows, int cols);
// Loads such a matrix with its bias, if there is one.
Status load_flat_linear(TensorLoader& tensors, const std::string& stem, int outputs, int inputs,
                        LinearWeights& out);

}  // namespace penstock
