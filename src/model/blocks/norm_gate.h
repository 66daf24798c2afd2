// Gates of norms (A.X K2): y = norm(x) becomes y * sigmoid(up silu(down y)), where down and up have a
// low rank.
#pragma once
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kAttnGateDown{"", "input_layernorm.W_down"};
inline constexpr TensorName kAttnGateUp{"", "input_layernorm.W_up"};
inline constexpr TensorName kFfnGateDown{"", "post_attention_layernorm.W_down"};
inline constexpr TensorName kFfnGateUp{"", "post_attention_layernorm.W_up"};
// kFfnNorm of layers whose norm has a gate.
inline constexpr TensorName kGatedFfnNorm{"", "post_attention_layernorm.norm"};
}  // namespace tensor

struct NormGateWeights {
  LinearWeights down, up;  // [gate_rank, model_dim] and back, or empty: the norm has no gate
};

// Of a layer, with NormConfig::gate_rank: before attention, and before experts.
void visit_attention_gate(TensorVisitor& v, NormGateWeights& w);
void visit_experts_gate(TensorVisitor& v, NormGateWeights& w);

class NormGate {
 public:
  // Takes scratch memory for n tokens.
  NormGate(const ModelConfig& config, int n, Ops& ops);
  // Returns norm(x), which is in `normed`, with its gate if it has one.
  NormedInput apply(Tensor x, const NormWeights& norm, const NormGateWeights& gate, Tensor normed);

 private:
  const ModelConfig& config_;
  Ops& ops_;
  Tensor low_, gates_;  // [n, gate_rank], [n, model_dim]
};

}  // namespace penstock
