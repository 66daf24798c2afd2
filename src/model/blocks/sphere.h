// Layers on the unit sphere (nGPT, arXiv 2410.01131; Dory): all states have length 1, and a sub-layer
// draws the stream toward what it gives, each feature at a learned rate:
//   h = unit(x);  x = h + rate (unit(f(h)) - h),  unit(x) = x / sqrt(sum of x^2 + eps).
// Norms have no weights. Heads of queries and keys have length 1; queries, gates and the two factors
// of feed-forwards have learned scales.
#pragma once
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kSphereQ{"", "@0.mixer.q_proj"};
inline constexpr TensorName kSphereK{"", "@0.mixer.k_proj"};
inline constexpr TensorName kSphereV{"", "@0.mixer.v_proj"};
inline constexpr TensorName kSphereO{"", "@0.mixer.o_proj"};
inline constexpr TensorName kSphereGates{"", "@0.mixer.g_proj"};
inline constexpr TensorName kSphereGate{"", "@1.mixer.gate_proj"};
inline constexpr TensorName kSphereUp{"", "@1.mixer.up_proj"};
inline constexpr TensorName kSphereDown{"", "@1.mixer.down_proj"};
// Whole names.
inline constexpr TensorName kSphereQScale{"", "@0.mixer.sqk"};
inline constexpr TensorName kSphereGatesScale{"", "@0.mixer.s_gate"};
inline constexpr TensorName kSphereAttnRate{"", "@0.attn_alpha"};
inline constexpr TensorName kSphereGateScale{"", "@1.mixer.suv_gate"};
inline constexpr TensorName kSphereUpScale{"", "@1.mixer.suv_up"};
inline constexpr TensorName kSphereFfnRate{"", "@1.mlp_alpha"};
// Outside of the layers, a whole name: factors of logits.
inline constexpr TensorName kLogitScale{"", "lm_head.logit_scale"};
}  // namespace tensor

struct SphereConfig {
  // Number that stored scales are divided by; 0 = no layer is of this kind.
  float stored = 0.0f;
  float rate = 0.0f;  // multiplies rates
  // Layers that are computed once before those that are computed `loops` times, and the number of
  // the latter.
  int n_before = 0, n_looped = 0, loops = 1;
  bool operator==(const SphereConfig&) const = default;
};

std::string_view difference(const SphereConfig& a, const SphereConfig& b);

struct SphereWeights {
  LinearWeights q, k, v, gates, o;
  LinearWeights gate, up, down;
  std::unique_ptr<Vector> q_scale, gates_scale;               // [q_dim], as applied
  std::unique_ptr<Vector> gate_scale, up_scale;               // [ffn_dim]
  std::unique_ptr<Vector> attention_rate, feed_forward_rate;  // [model_dim]
  // What norms of each width multiply by, so that lengths become 1.
  std::unique_ptr<Vector> unit, head_unit, attended_unit, hidden_unit;
};

void visit(TensorVisitor& v, SphereWeights& w);

class SphereLayer {
 public:
  explicit SphereLayer(Sublayer& sublayer);
  void forward(int layer, Tensor x);
  // out = unit(x), rows of the stream.
  void unit(int layer, Tensor x, Tensor out);

 private:
  void attend(int layer, Tensor h, Tensor out);
  void feed_forward(int layer, Tensor h, Tensor out);
  // x = h + rate (unit(y) - h)
  void draw(int layer, Tensor y, const Vector& rate, Tensor x);

  Sublayer& s_;
  Tensor q_, k_, v_, gates_, attended_;
  Tensor gate_, up_;
  Tensor h_, y_;
};

}  // namespace penstock
