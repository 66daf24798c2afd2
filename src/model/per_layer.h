// What layers get of a token beside the stream: Gemma 3n's and 4's per-layer embeddings.
#pragma once
#include "model/arch/archs.h"

namespace penstock {

class PerLayerInputs {
 public:
  // Those of all layers, for the step's tokens; x: [n, model_dim], the first layer's input.
  PerLayerInputs(const ModelConfig& config, const ModelWeights& weights, Tensor x, Ops& ops);
  // Those of the layers from first_layer on, as another stage has made them (from()).
  PerLayerInputs(const ModelConfig& config, const ModelWeights& weights, Tensor inputs, int first_layer,
                 Ops& ops);
  // [n, those of the layers from this one on]
  Tensor from(int layer) const {
    const int at = (layer - first_layer_) * config_.per_layer_dim;
    return all_.columns(at, all_.cols - at);
  }

  // norm(projection(act(gate x) * the layer's part)): [n, model_dim], valid until the next call.
  Tensor update(int layer, Tensor x);

 private:
  const ModelConfig& config_;
  const ModelWeights& weights_;
  Ops& ops_;
  int first_layer_ = 0;
  Tensor all_;    // [n, (n_layers - first_layer_) * per_layer_dim]
  Tensor gated_;  // [n, per_layer_dim]
  Tensor out_;    // [n, model_dim]
};

}  // namespace penstock
