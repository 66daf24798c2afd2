// The layer behind a checkpoint's last one that predicts one token further (DeepSeek V3's "multi-token prediction", GLM-4.5's
// and Qwen3.5's): from the target's state after its final norm at a token, and the embedding of the token after it,
//   x = projection [norm(embedding), norm(state)];  x = layer(x);  logits = output norm(x)
// it predicts the token after that. norm(x) stands for the target's state when it is asked again with its own guess. The order
// and which state it reads are those of llama.cpp's graphs.
#pragma once
#include <memory>
#include <span>

#include "model/model.h"

namespace penstock {

struct NextTokenWeights;

class NextTokenLayer {
 public:
  // `target` outlives it, and so does `source` where a backend keeps views; the first of several such layers is used.
  // max_seq_len as Model::load's. Errors: kUnsupported (the file has none, or one that this does not compute), kCorruptFile.
  static Result<std::unique_ptr<NextTokenLayer>> load(const WeightSource& source, const Model& target,
                                                      Ops& ops, int max_seq_len = 0);
  ~NextTokenLayer();

  // Of a cache of its own, with one layer.
  CacheSpec cache_spec(KvDType dtype, int block_size) const { return config_.cache_spec(dtype, block_size); }
  int64_t weight_bytes() const { return weight_bytes_; }  // without what it has in common with the target

  // A step of `ops`. states [n_tokens * model_dim]: row i is the state at the token before token i of the batch. `hidden` of
  // the result is [rows, model_dim], to be read as a state; logits and it are empty where no row is wanted.
  StepOutputs forward(const Batch& batch, std::span<const float> states, KvCache& cache, Ops& ops) const;

 private:
  NextTokenLayer(const Model& target, ModelConfig config);
  const Model& target_;
  const ModelConfig config_;
  std::unique_ptr<NextTokenWeights> weights_;
  int64_t weight_bytes_ = 0;
};

}  // namespace penstock
