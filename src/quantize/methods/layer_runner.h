// Runs token sequences through a decoder one layer at a time: memory for one layer's weights and
// the residual streams of all tokens. The weights of the layer can be replaced between runs.
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
  // activations in F32 whatever the batch; false: the engine's usual kernels
  bool exact = true;
};

class LayerRunner {
 public:
  // The source must outlive the runner. Embeds the sequences; those longer than the model's limit
  // are an error.
  static Result<std::unique_ptr<LayerRunner>> open(
      const WeightSource& source, const RunnerOptions& options,
      const std::vector<std::vector<TokenId>>& sequences);

  const ModelConfig& config() const { return config_; }
  ObservingOps& ops() { return *ops_; }
  int n_tokens() const { return static_cast<int>(tokens_.size()); }

  // Loads the layer's weights; forgets those of the layer before.
  Status load(int layer);
  LayerWeights& weights() { return frame_->layers[static_cast<size_t>(layer_)]; }
  // Replaces one tensor of the loaded layer by these values, in F32; as the source's configuration
  // uses them.
  Status replace(const MappedTensor& tensor, const std::vector<float>& values);
  // The matrices that a tensor became (three for a fused one).
  std::vector<std::unique_ptr<Weight>*> weights_of(const MappedTensor& tensor);

  // All sequences through the loaded layer. keep: the residual streams move on to its outputs;
  // otherwise only listeners see the run.
  Status run(bool keep, const ObservingOps::Pass& pass = {});
  // The residual stream before the loaded layer (after it, when run(true) was called): [n_tokens,
  // model_dim].
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
