// Loads the weights outside the layers; a pipeline stage loads only those that it needs.
#pragma once
#include "model/load/tensor_loader.h"

namespace penstock {

class FrameLoader {
 public:
  FrameLoader(TensorLoader& tensors, const ShardOptions& shard)
      : tensors_(tensors),
        config_(tensors.config()),
        names_(tensors.names()),
        stage_(shard.stage),
        cuts_vocabulary_(shard.cuts_vocabulary) {}

  Status load(ModelWeights& weights);
  Status load_ropes(ModelWeights& weights);
  // Treats tensors of other pipeline stages as used. own: layers of this stage.
  void pass_over_other_stages(Shard::Range own);

 private:
  using Range = Shard::Range;
  Status load_streams(ModelWeights& weights);
  Status load_relative(ModelWeights& weights);
  Result<std::unique_ptr<Weight>> wave_table();
  Status load_per_layer(PerLayerFrame& out);
  Status load_head(ModelWeights& weights);
  Result<std::vector<float>> frequencies_of(const RopeConfig& rope, bool is_long);
  int first_rotated(int rope) const;
  Status multiply_by_learned(std::vector<float>& frequencies);
  Status divide_by_factors(const std::string& name, std::vector<float>& frequencies);

  TensorLoader& tensors_;
  const ModelConfig& config_;
  const NameTable& names_;
  const Stage stage_;
  const bool cuts_vocabulary_;
};

}  // namespace penstock
