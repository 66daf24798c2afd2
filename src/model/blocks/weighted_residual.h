// Residual streams that are weighed by column where a sub-layer's output y joins them. By shares (Muse
// Spark): x = kept x + added norm(y), where kept and added come of one vector (SharesSpec). By scales
// (ZAYA): x = kept x + added y + offset, of which the files have offsets of x and y (AffineSpec).
#pragma once
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// All but kFfnShareScale are whole names.
inline constexpr TensorName kAttnShares{"", "post_attention_residual_gate.gate"};
inline constexpr TensorName kFfnShares{"", "post_feedforward_residual_gate.gate"};
inline constexpr TensorName kFfnShareScale{"", "post_feedforward_layernorm"};
inline constexpr TensorName kAttnAddedScale{"",
                                            "post_attention_residual_scale.hidden_states_scale"};
inline constexpr TensorName kAttnAddedOffset{"",
                                             "post_attention_residual_scale.hidden_states_bias"};
inline constexpr TensorName kAttnKeptScale{"", "post_attention_residual_scale.residual_scale"};
inline constexpr TensorName kAttnKeptOffset{"", "post_attention_residual_scale.residual_bias"};
inline constexpr TensorName kFfnAddedScale{"", "post_mlp_residual_scale.hidden_states_scale"};
inline constexpr TensorName kFfnAddedOffset{"", "post_mlp_residual_scale.hidden_states_bias"};
inline constexpr TensorName kFfnKeptScale{"", "post_mlp_residual_scale.residual_scale"};
inline constexpr TensorName kFfnKeptOffset{"", "post_mlp_residual_scale.residual_bias"};
// Outside of the layers: of embeddings.
inline constexpr TensorName kInputScale{"", "input_hidden_states_scale"};
inline constexpr TensorName kInputOffset{"", "input_hidden_states_bias"};
}  // namespace tensor

// Vectors [model_dim]; null: ones, or zeros.
struct ColumnWeights {
  std::unique_ptr<Vector> kept, added, offset;
};
struct WeightedResidualWeights {
  ColumnWeights attention, feed_forward;
  NormWeights ffn_scale;  // by shares: multiplies the feed-forward's output before its norm
};

void visit(TensorVisitor& v, WeightedResidualWeights& w);
// By scales: what becomes of embeddings, x = kept x + offset.
void visit_input(TensorVisitor& v, ColumnWeights& w);

class WeightedResidual {
 public:
  // Takes scratch memory for n tokens.
  WeightedResidual(const ModelConfig& config, int n, Ops& ops);
  // x = kept x + offset.
  void begin(const ColumnWeights& w, Tensor x);
  // Tensor for the output of a sub-layer, which is added to zeros.
  Tensor cleared();
  // y = norm(scale * y) without weights, by shares; scale: null: ones.
  void norm(const Vector* scale, Tensor y);
  // x = kept x + added y + offset.
  void join(const ColumnWeights& w, Tensor y, Tensor x);

 private:
  const ModelConfig& config_;
  Ops& ops_;
  Tensor out_;  // [n, model_dim]
};

}  // namespace penstock
