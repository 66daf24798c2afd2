// Dense feed-forwards: x += down(act(gate h) * up h), or down(act(up h)) without a gate.
#pragma once
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kGate{"ffn_gate", "mlp.gate_proj"};
inline constexpr TensorName kUp{"ffn_up", "mlp.up_proj"};
inline constexpr TensorName kGateUp{"ffn_up", "mlp.gate_up_proj"};
inline constexpr TensorName kDown{"ffn_down", "mlp.down_proj"};
inline constexpr TensorName kFfnSubNorm{"ffn_sub_norm", "mlp.ffn_sub_norm"};
inline constexpr TensorName kFfnFactor{"", "mlp.global_scale"};  // whole name
}  // namespace tensor

// Configuration of dense feed-forwards and of every expert.
struct FeedForwardConfig {
  // down(act(gate x) * up x); false: down(act(up x)).
  bool gated = true;
  ActivationFunction activation;
  // Factors of gates, before the activation, and of the output of the down projection (Falcon-H1).
  float gate_factor = 1.0f;
  float down_factor = 1.0f;
  bool scaled = false;  // the file has a factor of each layer's output (tensor::kFfnFactor)
};

std::string_view difference(const FeedForwardConfig& a, const FeedForwardConfig& b);

struct DenseWeights {
  LinearWeights gate, up, down;  // gate may be empty
  NormWeights sub_norm;          // [ffn_dim]
  float factor = 1.0f;           // of the output
};

void visit(TensorVisitor& v, DenseWeights& w);

// hidden = act(gate h) * up h, or act(up h) without a gate. cutoff: LayerConfig::gate_cutoff.
void gated_product(Sublayer& s, const NormedInput& h, const LinearWeights& gate,
                   const LinearWeights& up, const ActivationFunction& f, Tensor hidden,
                   Tensor other, float cutoff);

class DenseBlock {
 public:
  explicit DenseBlock(Sublayer& sublayer);
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  // Returns the hidden activations, which the down projection reads.
  Tensor hidden(int layer, const NormedInput& h);

 private:
  Sublayer& s_;
  Tensor gate_, up_;  // [n, widest_ffn()]
};

}  // namespace penstock
