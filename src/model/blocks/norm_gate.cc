#include "model/blocks/norm_gate.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

// Every rank has all of it.
void visit_gate(TensorVisitor& v, const TensorName& down, const TensorName& up,
                NormGateWeights& w) {
  const int dim = v.config().model_dim, rank = v.config().norm.gate_rank;
  v.linear({&down, WeightRole::kRouter, rank, dim}, w.down);
  v.linear({&up, WeightRole::kRouter, dim, rank}, w.up);
}

}  // namespace

void visit_attention_gate(TensorVisitor& v, NormGateWeights& w) {
  visit_gate(v, tensor::kAttnGateDown, tensor::kAttnGateUp, w);
}

void visit_experts_gate(TensorVisitor& v, NormGateWeights& w) {
  visit_gate(v, tensor::kFfnGateDown, tensor::kFfnGateUp, w);
}

NormGate::NormGate(const ModelConfig& config, int n, Ops& ops)
    : config_(config),
      ops_(ops),
      low_(ops.new_tensor(n, config.norm.gate_rank)),
      gates_(ops.new_tensor(n, config.model_dim)) {}

NormedInput NormGate::apply(Tensor x, const NormWeights& norm, const NormGateWeights& gate,
                            Tensor normed) {
  ops_.norm(x, norm_params(config_, norm), normed);
  if (gate.down.weight != nullptr) {
    const LinearTarget down = gate.down.into(low_), up = gate.up.into(gates_);
    ops_.linear(normed, {&down, 1});
    ops_.activate(low_, Activation::kSilu);
    ops_.linear(low_, {&up, 1});
    ops_.activate_mul(gates_, normed, Activation::kSigmoid, normed);
  }
  return {normed, {}, normed};
}

}  // namespace penstock
