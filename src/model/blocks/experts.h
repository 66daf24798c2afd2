// Mixtures of experts, optionally with shared experts that every token uses, or beside a dense
// feed-forward.
#pragma once
#include <cmath>
#include <memory>
#include <optional>

#include "model/blocks/dense.h"
#include "model/blocks/router_mlp.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// Names of experts contain {} for the index of the expert, or nothing where one tensor holds all.
// kExpertGateUp is the whole name of fused experts [n_experts, 2 * ffn, dim]; kExpertDown is then
// whole too, except in GGUF, where a file may have two tensors instead of the fused one.
// kFusedExpertDown replaces kExpertDown in files that fuse experts, where others have one tensor
// for each (choose_names()). kSelectionBias, kRouterScale (weights of the router's norm times
// sqrt(model_dim)) and kExpertScale are whole names.
inline constexpr TensorName kRouter{"ffn_gate_inp", "mlp.gate"};
inline constexpr TensorName kExpertsIn{"ffn_latent_down", ""};
inline constexpr TensorName kExpertsOut{"ffn_latent_up", ""};
inline constexpr TensorName kExpertsInNorm{"", "mlp.pre_expert_norm"};
inline constexpr TensorName kExpertResultNorm{"", "mlp.experts.post_expert_norm"};
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
// whole name
inline constexpr TensorName kTokenExperts{"ffn_gate_tid2eid.weight", "mlp.gate.tid2eid"};
inline constexpr TensorName kSelectionBias{"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"};
// A whole name of a vector that is zero in the files that have it (Nomic-BERT with experts).
inline constexpr TensorName kExpertsZero{"", ""};
inline constexpr TensorName kExpertNorm{"pre_ffw_norm_2", ""};
inline constexpr TensorName kDensePostNorm{"post_ffw_norm_1", ""};
inline constexpr TensorName kExpertPostNorm{"post_ffw_norm_2", ""};
inline constexpr TensorName kRouterScale{"ffn_gate_inp.scale", ""};
inline constexpr TensorName kExpertScale{"ffn_down_exps.scale", ""};
// Whole names: of the experts that every token uses beside those that it chooses (n_pinned), and of the
// factor of all weights.
inline constexpr TensorName kPinnedGateUp{"", ""};
inline constexpr TensorName kPinnedDown{"", ""};
inline constexpr TensorName kWeightsFactor{"", ""};
// Experts of groups (ExpertsConfig::group_size).
inline constexpr TensorName kGroupGate{"ffn_gate_chexps", "mlp.chunk_experts.{}.gate_proj"};
inline constexpr TensorName kGroupUp{"ffn_up_chexps", "mlp.chunk_experts.{}.up_proj"};
inline constexpr TensorName kGroupDown{"ffn_down_chexps", "mlp.chunk_experts.{}.down_proj"};
// A whole name of what directories have beside them and nothing reads.
inline constexpr TensorName kUnreadExpertBias{"", "mlp.expert_bias"};
}  // namespace tensor

struct LayerWeights;

struct ExpertsConfig {
  // Number of experts of a mixture; 0 = the model has none.
  int count = 0;
  // Features of an expert.
  int ffn_dim = 0;
  // Experts without weights that give their input, behind the others in the router (LongCat).
  int n_identities = 0;
  // Those without weights give nothing (ZAYA).
  bool idle = false;
  // The last of them, which every token uses, with weights like those of chosen ones: they are
  // among routing.n_active, and files have tensors of their own for them (Inkling).
  int n_pinned = 0;
  bool scaled = false;  // the file has a factor of the weights in each layer
  ExpertRouting routing;
  // Soft bound of the router's logits, cap * tanh(logit / cap); 0 = no bound (Laguna).
  float router_softcap = 0.0f;
  // Factor of the router's logits (Muse Spark).
  float router_factor = 1.0f;
  // The router is a RouterMlp of this width, ModelConfig::carried_dim; 0: a matrix.
  int router_dim = 0;
  // The file has a vector that is added to scores for the choice of experts only.
  bool selection_bias = false;
  // In directories the name of the router is whole: a tensor ".bias" beside it is no bias of it.
  bool bare_router = false;
  // Size of the latent that experts read and return instead of the stream, between two projections;
  // 0 = none.
  int latent_dim = 0;
  // The latent is normed, and what an expert gives is multiplied by a vector and normed without
  // weights, by NormConfig::post_eps (Muse Spark).
  bool normed_latent = false;
  // Features of all shared experts together; 0 = none.
  int shared_dim = 0;
  // The output of shared experts is multiplied by the sigmoid of a projection.
  bool shared_gate = false;
  // Factor of the output of shared experts (Cohere 2 with experts).
  float shared_factor = 1.0f;
  // The file has tensor::kExpertsZero.
  bool zero_bias = false;
  // A norm follows mixtures, with their shared experts (A.X K1); dense layers have none.
  bool normed = false;
  // Mixtures are computed beside the dense feed-forward of a layer, each with norms of its own
  // (Gemma 4).
  bool beside_dense = false;
  // Mixtures read what the dense feed-forward of their layer reads, and join the stream behind a
  // later layer (LayerConfig::joining_layer, longcat_forward).
  bool shortcut = false;
  // Mixtures read the stream before attention by a norm of their own (BesideWeights::expert_norm) and
  // join it behind the dense feed-forward (Arctic, arctic_forward).
  bool reads_early = false;
  // Routers read the stream before attention (SmallThinker, smallthinker_forward).
  bool routes_early = false;
  // Neighbouring experts in groups of so many have a smaller expert together, which reads what they read
  // and has their weights times group_factor (GroveMoE); 0 = none.
  int group_size = 0;
  int group_dim = 0;  // features of a group's expert
  float group_factor = 0.0f;
  // Experts that a router chooses from.
  int n_routed() const { return count + n_identities; }
};

std::string_view difference(const ExpertsConfig& a, const ExpertsConfig& b);

struct MixtureWeights {
  LinearWeights router;                    // [n_routed, model_dim]
  std::unique_ptr<Vector> selection_bias;  // [n_routed] or null
  float factor = 1.0f;                     // of the experts' weights
  std::unique_ptr<Vector> token_experts;   // [vocab_size, n_active] with hashed_experts, or null
  RouterMlpWeights router_mlp;             // in place of router, with ExpertsConfig::router_dim
  // [expert_latent_dim, model_dim] and back, or empty
  LinearWeights in, out;
  NormWeights in_norm, result_norm;  // [expert_latent_dim], with ExpertsConfig::normed_latent
  ExpertWeights gate, up, down;      // gate is empty for experts without gates
  ExpertWeights group_gate, group_up, group_down;  // with ExpertsConfig::group_size
  // Of shared experts, or empty; shared_gate may be empty alone.
  LinearWeights shared_gate, shared_up, shared_down;
  LinearWeights shared_router;  // [1, model_dim] or empty
};

// Weights of experts beside a dense feed-forward (ExpertsConfig::beside_dense).
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
  // Computes the router's logits, which forward() otherwise does; with ExpertsConfig::routes_early.
  void choose(int layer, const NormedInput& h);
  // x += mixture of the chosen experts + shared experts.
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);
  // x += post(norm(dense(h)) + norm(experts(norm(x)))). The router reads a third norm of x.
  void beside_dense(int layer, const NormedInput& h, DenseBlock& dense, Tensor x);

 private:
  // Between begin() and mix() a mixture on the host is computed beside what is asked for.
  MoeParams begin(int layer, const NormedInput& h);
  void mix(const LayerWeights& layer, const NormedInput& h, const MoeParams& params);
  // s_.out += what the groups of the chosen experts give.
  void add_groups(const LayerWeights& layer, const NormedInput& h, MoeParams params);
  void compute_shared(const LayerWeights& layer, const NormedInput& h);

  Sublayer& s_;
  std::optional<RouterMlp> router_mlp_;
  Tensor router_;                   // [n, n_routed]
  Tensor shared_gate_, shared_up_;  // [n, shared_ffn_dim]
  Tensor shared_weight_;            // [n, 1]
  Tensor shared_out_;               // [n, model_dim]
  Tensor router_in_;                // [n, model_dim]
  Tensor latent_in_, latent_out_;   // [n, expert_latent_dim]
};

}  // namespace penstock
