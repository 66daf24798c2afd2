// Routers of experts that are feed-forwards (ZAYA): s = down h + scale * s of the layer before;
// logits = out gelu(fc2 gelu(fc1 norm(s))).
#pragma once
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kRouterDown{"", "mlp.gate.down_proj"};
inline constexpr TensorName kRouterStateScale{"", "mlp.gate.router_states_scale"};  // whole name
inline constexpr TensorName kRouterNorm{"", "mlp.gate.router_mlp.norm"};
inline constexpr TensorName kRouterFirst{"", "mlp.gate.router_mlp.fc1"};
inline constexpr TensorName kRouterSecond{"", "mlp.gate.router_mlp.fc2"};
inline constexpr TensorName kRouterOut{"", "mlp.gate.router_mlp.out_proj"};
}  // namespace tensor

struct RouterMlpWeights {
  LinearWeights down;             // [router_dim, model_dim]
  std::unique_ptr<Vector> scale;  // [router_dim], null in the first layer
  NormWeights norm;               // [router_dim]
  LinearWeights first, second;    // [router_dim, router_dim]
  LinearWeights out;              // [n_routed, router_dim]
};

void visit(TensorVisitor& v, RouterMlpWeights& w);

// Every rank has all of it.
class RouterMlp {
 public:
  explicit RouterMlp(Sublayer& sublayer);
  void forward(int layer, const NormedInput& h, const RouterMlpWeights& w, Tensor logits);

 private:
  Sublayer& s_;           // its `carried` is s of the last layer
  Tensor down_, hidden_;  // [n, router_dim]
};

}  // namespace penstock
