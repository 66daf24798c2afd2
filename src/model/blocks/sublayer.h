// What the sub-layers of one forward share. n tokens of all sequences are the rows of every tensor.
#pragma once
#include "model/tensors/weights.h"
#include "ops/batch.h"
#include "ops/ops.h"

namespace penstock {

struct ModelConfig;
struct ModelWeights;

NormParams norm_params(const ModelConfig& config, const NormWeights& norm);

// The step's backend and cache, and how a sub-layer adds to the stream.
class Sublayer {
 public:
  Sublayer(const ModelConfig& config, const ModelWeights& weights, StepShape shape, KvCache& cache, Ops& ops);

  // x += post(delta), where there is such a norm; then `next` is prepared (null: nobody reads x yet).
  // partial: delta is a share of the sum over the ranks.
  void add(Tensor delta, bool partial, Tensor x, const NormWeights& post, const NormedInput* next);
  // x += post(in weight^T); a model without a norm behind the sub-layer has it empty, and may have a multiplier in its place.
  void add_product(Tensor in, const LinearWeights& product, Tensor x, const NormWeights& post,
                   const NormedInput* next, float multiplier = 1.0f);
  // x between the zeros that the weights' other inputs are (LinearWeights::lead).
  Tensor padded(Tensor x, const LinearWeights& product);
  // h as products read it where activations are rounded first.
  NormedInput rounded(const NormedInput& h);
  void multiply(Tensor x, float factor);

  const ModelConfig& config;
  const ModelWeights& weights;
  KvCache& cache;
  Ops& ops;
  const int n;  // tokens of the step
  Tensor out;   // [n, model_dim]: what a sub-layer is about to add

 private:
  Tensor padded_;  // [n, what a product reads at most, with ModelWeights::padding]
};

}  // namespace penstock
