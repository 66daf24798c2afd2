// Mixtures of experts, with experts that every token takes, and with a dense feed-forward beside them.
#pragma once
#include <cmath>
#include <memory>

#include "model/blocks/dense.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// Names of experts have {} for the expert, or none when all are one tensor. kExpertGateUp: fused experts [n_experts, 2 * ffn, dim],
// whole; then kExpertDown is whole too, but not in GGUF, where the fused tensor may be missing for two. kFusedExpertDown: where a file
// may also have one tensor for each, what stands for kExpertDown then (choose_names()). kSelectionBias, kRouterScale (what the router's
// norm has for weights, times the root of model_dim) and kExpertScale are whole names.
inline constexpr TensorName kRouter{"ffn_gate_inp", "mlp.gate"};
inline constexpr TensorName kExpertsIn{"ffn_latent_down", ""};
inline constexpr TensorName kExpertsOut{"ffn_latent_up", ""};
inline constexpr TensorName kExpertGate{"ffn_gate_exps", "mlp.experts.{}.gate_proj"};
inline constexpr TensorName kExpertUp{"ffn_up_exps", "mlp.experts.{}.up_proj"};
inline constexpr TensorName kExpertDown{"ffn_down_exps", "mlp.experts.{}.down_proj"};
inline constexpr TensorName kExpertGateUp{"", ""};
inline constexpr TensorName kFusedExpertDown{"", ""};
inline constexpr TensorName kSharedGate{"ffn_gate_shexp", "mlp.shared_experts.gate_proj"};
inline constexpr TensorName kSharedUp{"ffn_up_shexp", "mlp.shared_experts.up_proj"};
inline constexpr TensorName kSharedGateUp{"", ""};
inline constexpr TensorName kSharedDown{"ffn_down_shexp", "mlp.shared_experts.down_proj"};
inline constexpr TensorName kSharedRouter{"ffn_gate_inp_shexp", ""};
inline constexpr TensorName kSelectionBias{"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"};
inline constexpr TensorName kExpertNorm{"pre_ffw_norm_2", ""};
inline constexpr TensorName kDensePostNorm{"post_ffw_norm_1", ""};
inline constexpr TensorName kExpertPostNorm{"post_ffw_norm_2", ""};
inline constexpr TensorName kRouterScale{"ffn_gate_inp.scale", ""};
inline constexpr TensorName kExpertScale{"ffn_down_exps.scale", ""};
}  // namespace tensor

struct LayerWeights;

struct ExpertsConfig {
  // Experts of a layer that is a mixture; 0 = no layer is.
  int count = 0;
  // Features of an expert.
  int ffn_dim = 0;
  ExpertRouting routing;
  // Vector in the file that is added to scores when experts are chosen.
  bool selection_bias = false;
  // Size of the projection that experts read instead of the stream, and that another one widens behind them; 0 = none.
  int latent_dim = 0;
  // Features of the experts that every token takes, all together; 0 = none.
  int shared_dim = 0;
  // Sigmoid of a projection that multiplies what those give.
  bool shared_gate = false;
  // Mixtures beside the layers' dense feed-forward, each with norms of its own (Gemma 4).
  bool beside_dense = false;
};

std::string_view difference(const ExpertsConfig& a, const ExpertsConfig& b);

struct MixtureWeights {
  LinearWeights router;                               // [n_experts, model_dim]
  std::unique_ptr<Vector> selection_bias;             // [n_experts] or null
  LinearWeights in, out;                              // [expert_latent_dim, model_dim] and back, or empty
  ExpertWeights gate, up, down;                       // gates may be empty
  LinearWeights shared_gate, shared_up, shared_down;  // of the shared experts, or empty; so may gates be
  LinearWeights shared_router;                        // [1, model_dim] or empty
};

// Of experts beside a dense feed-forward (ExpertsConfig::beside_dense).
struct BesideWeights {
  NormWeights router_norm, expert_norm;           // of the stream, [model_dim]
  NormWeights dense_post_norm, expert_post_norm;  // [model_dim]
  std::unique_ptr<Vector> expert_scale;           // [n_experts]
};

void visit(TensorVisitor& v, MixtureWeights& w);

void visit(TensorVisitor& v, BesideWeights& w);

class ExpertsBlock {
 public:
  explicit ExpertsBlock(Sublayer& sublayer);
  // x += the chosen experts' mixture and what the shared ones give.
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  // x += post(norm(dense(h)) + norm(experts(norm(x)))), of which the router reads another norm.
  void beside_dense(int layer, const NormedInput& h, DenseBlock& dense, Tensor x);

 private:
  void mix(int layer, const NormedInput& router_input, const NormedInput& h);
  void add_shared(const LayerWeights& layer, const NormedInput& h, Tensor to);

  Sublayer& s_;
  Tensor router_;                   // [n, n_experts]
  Tensor shared_gate_, shared_up_;  // [n, shared_ffn_dim]
  Tensor shared_weight_;            // [n, 1]
  Tensor shared_out_;               // [n, model_dim]
  Tensor router_in_;                // [n, model_dim]
  Tensor latent_in_, latent_out_;   // [n, expert_latent_dim]
};

}  // namespace penstock
