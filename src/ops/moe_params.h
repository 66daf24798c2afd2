// Mixtures of experts: how a token's experts are chosen, and what a backend computes with them.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/activation.h"
#include "ops/weights.h"

namespace penstock {

inline constexpr int kMaxExpertGroups = 64;
enum class RouterScore : uint8_t {
  kSoftmax,       // softmax over all experts
  kSigmoid,       // sigmoid of each logit
  kSparseMixer,   // softmax of the experts not chosen yet and near the best (ExpertRouting::jitter)
  kSqrtSoftplus,  // sqrt(log(1 + exp(logit))); backends with can_select()
};

// Choice and weights of a token's experts. Ties: the lower index.
struct ExpertRouting {
  int n_active = 2;
  RouterScore score = RouterScore::kSoftmax;
  // With several groups of equal size, experts are chosen from the best n_active_groups groups. The
  // score of a group is that of its best expert, or the sum of its best two (group_top 2).
  int n_groups = 1, n_active_groups = 1, group_top = 1;  // n_groups at most kMaxExpertGroups
  // weights are divided by max(sum + sum_eps, sum_min)
  bool normalize = true;
  float sum_eps = 0.0f, sum_min = 0.0f;
  // SparseMixer: near is (best - logit) / max(|logit|, best) <= 2 * jitter.
  float jitter = 0.0f;
  float scale = 1.0f;        // multiplies the weights last
  bool weigh_input = false;  // weights multiply the experts' inputs, not their outputs
  // The selection bias is added to logits, not to scores (Kolibri).
  bool by_logit = false;
  // Experts of groups left out compete as if their scores with the bias were 0, which others may be
  // below (A.X K2); backends with has_all(). False: they are never chosen.
  bool left_out_as_zero = false;
  int per_matrix = 1;  // experts of equal e / per_matrix are one in MoeParams; each choice counts
  bool operator==(const ExpertRouting&) const = default;
};

// An expert of a token and its weight.
struct ExpertChoice {
  int expert;  // -1: none
  float weight;
};

struct MoeParams {
  // One of each per expert: down(act(gate x) * up x), or, without gates, down(act(up x)).
  std::span<const std::unique_ptr<Weight>> gate, up, down;
  // one per expert, or empty
  std::span<const std::unique_ptr<Vector>> gate_bias, up_bias, down_bias;
  // One per expert, or empty: terms of the sequences' adapters.
  std::span<const AdapterTerms> gate_adapters, up_adapters, down_adapters;
  ExpertRouting routing;
  // [n_experts] or null: added to the scores when choosing, not when weighing.
  const Vector* selection_bias = nullptr;
  // [n_experts] or null: multiplies the weights last
  const Vector* expert_scale = nullptr;
  // [tokens of the vocabulary, n_active] or null: the experts of a token, whatever their scores, which
  // weigh them. REQUIRES: can_select().
  const Vector* token_experts = nullptr;
  // [down's rows] or null: what each expert gives is multiplied by it and then divided by its root
  // mean square, before the weights. REQUIRES: has_all(), no partial sums.
  const Vector* result_scale = nullptr;
  float result_eps = 0.0f;
  // Experts behind those in `up` give nothing; false: their input.
  bool idle_rest = false;
  ActivationFunction activation;
  // For a rank with a share of every expert's width: number of inputs of `down` before its own.
  // They are zeros.
  int down_lead = 0;
  // the experts are in a mapped file and may not be in memory
  bool mapped = false;
  bool on_host = false;  // weights, vectors and adapters are of Ops::host(), which computes this
  // cpu: [tokens, n_active] choices that are made already; empty: the router makes them
  std::span<const ExpertChoice> chosen = {};
};

// Experts of the host that a device has computed with copies of its own.
struct ExpertTraffic {
  int64_t choices = 0;  // of experts, by tokens
  int64_t hits = 0;     // choices whose expert was on the device
  int64_t moves = 0;    // experts copied to the device
  int64_t room = 0;     // bytes of the device that copies may take
};

}  // namespace penstock
