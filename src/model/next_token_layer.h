// A layer after the last decoder layer of a checkpoint, which predicts one token further
// (multi-token prediction of DeepSeek V3, GLM-4.5, Qwen3.5). From the target's state after its
// final norm at a token, and the embedding of the next token,
//   x = projection [norm(embedding), norm(state)];  x = layer(x);  logits = output norm(x)
// it predicts the token after that. To continue from its own guess, it reads norm(x) in the place
// of the target's state; so does the next one of several such layers, with the embedding of the
// token after that. Layers of Step 3.5 read streams without norms: that of the target behind its
// last layer, and x. Order and states are those of llama.cpp's graphs.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "model/guess_layer.h"

namespace penstock {

struct NextTokenWeights;

// Returns the configuration of such a layer: a decoder with one layer, that of
// ModelConfig::next_token_layers, or else equal to the last one of the target with attention, and
// with experts if the target has any. Errors: kUnsupported if the architecture's layer differs.
Result<ModelConfig> next_token_config(const ModelConfig& target, int index,
                                      const std::string& where);

class NextTokenLayer : public GuessLayer {
 public:
  // Loads the layer `index` of such layers. REQUIRES: `target` outlives it, and so does `source` if
  // the backend keeps views into it. Errors: kUnsupported (the file has no such layer, or one of
  // another kind), kCorruptFile.
  static Result<std::unique_ptr<NextTokenLayer>> load(const WeightSource& source,
                                                      const Model& target, Ops& ops, int index = 0);
  // Number of such layers in the file, one after the other; 0 if it cannot be opened.
  static int count(const WeightSource& source, const Model& target, Ops& ops);
  ~NextTokenLayer() override;

  CacheSpec cache_spec(KvDType dtype, int block_size) const override {
    return config_.cache_spec(dtype, block_size);
  }
  bool takes_long_rope(int64_t reach) const override;
  int64_t weight_bytes() const override { return weight_bytes_; }
  std::span<const int> taps() const override { return taps_; }
  // Own states and those of the target are read alike.
  StepOutputs forward(const Batch& batch, std::span<const float> states, GuessOptions options,
                      KvCache& cache, Ops& ops) const override;

 private:
  NextTokenLayer(const Model& target, ModelConfig config);
  const Model& target_;
  const ModelConfig config_;
  std::vector<int> taps_;  // the stream behind the last layer, or none
  std::unique_ptr<NextTokenWeights> weights_;
  int64_t weight_bytes_ = 0;
};

}  // namespace penstock
