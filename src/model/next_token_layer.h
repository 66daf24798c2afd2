// The layer behind a checkpoint's last one that predicts one token further (DeepSeek V3's "multi-token prediction", GLM-4.5's
// and Qwen3.5's): from the target's state after its final norm at a token, and the embedding of the token after it,
//   x = projection [norm(embedding), norm(state)];  x = layer(x);  logits = output norm(x)
// it predicts the token after that. norm(x) stands for the target's state when it is asked again with its own guess. The order
// and which state it reads are those of llama.cpp's graphs.
#pragma once
#include <memory>
#include <span>

#include "model/guess_layer.h"

namespace penstock {

struct NextTokenWeights;

// Of such a layer: a decoder of one layer, like the last of the target's that attend; with experts if the target has any.
// Errors: kUnsupported for an architecture whose layers are others.
Result<ModelConfig> next_token_config(const ModelConfig& target, const std::string& where);

class NextTokenLayer : public GuessLayer {
 public:
  // `target` outlives it, and so does `source` where a backend keeps views; the first of several such layers is used.
  // Errors: kUnsupported (the file has none, or one that this does not compute), kCorruptFile.
  static Result<std::unique_ptr<NextTokenLayer>> load(const WeightSource& source, const Model& target,
                                                      Ops& ops);
  ~NextTokenLayer() override;

  CacheSpec cache_spec(KvDType dtype, int block_size) const override {
    return config_.cache_spec(dtype, block_size);
  }
  bool takes_long_rope(int64_t reach) const override;
  int64_t weight_bytes() const override { return weight_bytes_; }
  // Its own states are read as the target's.
  StepOutputs forward(const Batch& batch, std::span<const float> states, bool own, KvCache& cache,
                      Ops& ops) const override;

 private:
  NextTokenLayer(const Model& target, ModelConfig config);
  const Model& target_;
  const ModelConfig config_;
  std::unique_ptr<NextTokenWeights> weights_;
  int64_t weight_bytes_ = 0;
};

}  // namespace penstock
