// What layers get of a token beside the stream: Gemma 3n's and 4's per-layer embeddings.
#pragma once
#include "model/arch/archs.h"

namespace penstock {

class PerLayerInputs {
 public:
  // Those of all layers, for the step's tokens; x: [n, model_dim], the first layer's input.
  PerLayerInputs(const ModelConfig& config, const ModelWeights& weights, Tensor x, Ops& ops);

  // norm(projection(act(gate x) * the layer's part)): [n, model_dim], valid until the next call.
  Tensor update(int layer, Tensor x);

 private:
  const ModelConfig& config_;
  const ModelWeights& weights_;
  Ops& ops_;
  Tensor all_;    // [n, n_layers * per_layer_dim]
  Tensor gated_;  // [n, per_layer_dim]
  Tensor out_;    // [n, model_dim]
};

}  // namespace penstock
