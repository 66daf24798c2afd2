// Per-layer embeddings of Gemma 3n and 4: inputs that each layer gets for a token beside the
// residual stream.
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
  // Features of a token's per-layer input, from a table of their own; 0 = none.
  int dim = 0;
  // Rows of that table; 0 = vocab_size. Tokens beyond use the first row.
  int vocab = 0;
  // The token whose row of that table tokens with given rows have (Gemma 4); -1 = their own.
  TokenId given_token = -1;
};

// Weights of one layer: x += post(projection(act(gate x) * input)), where input is the layer's part
// of the inputs (PerLayerFrame).
struct PerLayerWeights {
  LinearWeights gate;        // [per_layer_dim, model_dim]
  LinearWeights projection;  // [model_dim, per_layer_dim]
  NormWeights post_norm;     // [model_dim]
};

// Weights that make the inputs of all layers from table[token] and norm(projection x), where x is
// the input of the first layer.
struct PerLayerFrame {
  std::unique_ptr<Weight> table;  // [vocab_size, n_layers * per_layer_dim]
  LinearWeights projection;       // [n_layers * per_layer_dim, model_dim]
  NormWeights norm;               // [per_layer_dim], of every layer's part
};

void visit(TensorVisitor& v, PerLayerWeights& w);

class PerLayerInputs {
 public:
  // Computes the inputs of all layers for the tokens of a step. x: [n, model_dim], the input of the
  // first layer.
  PerLayerInputs(const ModelConfig& config, const ModelWeights& weights, Tensor x, Ops& ops);
  // Takes the inputs of the layers from first_layer on, which another pipeline stage computed
  // (from()).
  PerLayerInputs(const ModelConfig& config, const ModelWeights& weights, Tensor inputs,
                 int first_layer, Ops& ops);
  // Returns the inputs of this layer and all later ones: [n, (n_layers - layer) * per_layer_dim].
  Tensor from(int layer) const;

  // Returns norm(projection(act(gate x) * the layer's input)): [n, model_dim], valid until the next
  // call.
  Tensor update(int layer, Tensor x);

 private:
  const ModelConfig& config_;
  const ModelWeights& weights_;
  Ops& ops_;
  int first_layer_ = 0;
  // [n, (n_layers - first_layer_) * per_layer_dim]
  Tensor all_;
  Tensor gated_;  // [n, per_layer_dim]
  Tensor out_;    // [n, model_dim]
};

}  // namespace penstock
