// What layers get of a token beside the stream: Gemma 3n's and 4's per-layer embeddings.
#pragma once
#include <memory>

#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kPerLayerGate{"inp_gate", "per_layer_input_gate"};
inline constexpr TensorName kPerLayerProjection{"proj", "per_layer_projection"};
inline constexpr TensorName kPerLayerPostNorm{"post_norm", "post_per_layer_input_norm"};
inline constexpr TensorName kPerLayerTable{"per_layer_token_embd", "embed_tokens_per_layer"};
inline constexpr TensorName kPerLayerFrame{"per_layer_model_proj", "per_layer_model_projection"};
inline constexpr TensorName kPerLayerFrameNorm{"per_layer_proj_norm", "per_layer_projection_norm"};
}  // namespace tensor

struct PerLayerConfig {
  // Features that every layer gets of a token beside the stream, from a table of their own; 0 = none.
  int dim = 0;
  // Rows of that table, 0 = vocab_size; tokens beyond have the first.
  int vocab = 0;
};

// x += post(projection(act(gate x) * input)), where the input is the layer's part of the token's (PerLayerFrame).
struct PerLayerWeights {
  LinearWeights gate;        // [per_layer_dim, model_dim]
  LinearWeights projection;  // [model_dim, per_layer_dim]
  NormWeights post_norm;     // [model_dim]
};

// The inputs of all layers: table[token] and norm(projection x), where x is the first layer's input.
struct PerLayerFrame {
  std::unique_ptr<Weight> table;  // [vocab_size, n_layers * per_layer_dim]
  LinearWeights projection;       // [n_layers * per_layer_dim, model_dim]
  NormWeights norm;               // [per_layer_dim], of every layer's part
};

void visit(TensorVisitor& v, PerLayerWeights& w);

class PerLayerInputs {
 public:
  // Those of all layers, for the step's tokens; x: [n, model_dim], the first layer's input.
  PerLayerInputs(const ModelConfig& config, const ModelWeights& weights, Tensor x, Ops& ops);
  // Those of the layers from first_layer on, as another stage has made them (from()).
  PerLayerInputs(const ModelConfig& config, const ModelWeights& weights, Tensor inputs, int first_layer,
                 Ops& ops);
  // [n, those of the layers from this one on]
  Tensor from(int layer) const;

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
