// Runs token sequences through a decoder one layer at a time, with memory for one layer's weights
// and the residual streams of all tokens. Weights of the layer can be replaced between runs.
#pragma once
#include <memory>
#include <vector>

#include "model/blocks/config.h"
#include "model/load/load_weights.h"
#include "quantize/map/tensor_map.h"
#include "quantize/methods/observing_ops.h"

namespace penstock {

struct RunnerOptions {
  int threads = 0;
  // activations are F32 for any batch; false: the engine's kernels
  bool exact = true;
};

class LayerRunner {
 public:
  // Embeds the sequences. REQUIRES: the source outlives the runner. Error: a sequence exceeds the
  // model's limit.
  static Result<std::unique_ptr<LayerRunner>> open(
      const WeightSource& source, const RunnerOptions& options,
      const std::vector<std::vector<TokenId>>& sequences);

  const ModelConfig& config() const { return config_; }
  ObservingOps& ops() { return *ops_; }
  int n_tokens() const { return static_cast<int>(tokens_.size()); }

  // Loads the layer's weights and releases those of the previous layer.
  Status load(int layer);
  LayerWeights& weights() { return frame_->layers[static_cast<size_t>(layer_)]; }
  // Replaces one tensor of the loaded layer by F32 values, in the form in which the source's
  // configuration uses them.
  Status replace(const MappedTensor& tensor, const std::vector<float>& values);
  // Returns the matrices that a tensor became (three for fused qkv).
  std::vector<std::unique_ptr<Weight>*> weights_of(const MappedTensor& tensor);

  // Runs all sequences through the loaded layer. keep: residual streams become its outputs;
  // otherwise the run only serves listeners.
  Status run(bool keep, const ObservingOps::Pass& pass = {});
  // Returns the residual stream before the loaded layer, or after it following run(true):
  // [n_tokens, model_dim].
  std::vector<float>& stream() { return stream_; }

 private:
  LayerRunner() = default;
  void embed();
  void run_batch(size_t first, size_t last, bool keep);

  ModelConfig config_;
  const WeightSource* source_ = nullptr;
  std::unique_ptr<Ops> inner_;
  std::unique_ptr<ObservingOps> ops_;
  std::unique_ptr<ModelWeights> frame_;
  std::unique_ptr<KvCache> cache_;
  int layer_ = -1;
  std::vector<TokenId> tokens_;  // of all sequences
  std::vector<int32_t> starts_;  // [n_sequences + 1]
  std::vector<float> stream_;
  int blocks_per_batch_ = 0;
};

}  // namespace penstock
