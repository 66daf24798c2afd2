#include "model/blocks/router_mlp.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {

void visit(TensorVisitor& v, RouterMlpWeights& w) {
  const ModelConfig& c = v.config();
  const int dim = c.experts.router_dim;
  const auto matrix = [&](const TensorName& name, int rows, int cols, LinearWeights& into) {
    v.linear({&name, WeightRole::kRouter, rows, cols, {}, Site::kNone, Part::kRouter}, into);
  };
  matrix(tensor::kRouterDown, dim, c.model_dim, w.down);
  if (v.layer() > 0) v.vector({&tensor::kRouterStateScale, dim, {0, dim}}, w.scale);
  v.norm({&tensor::kRouterNorm, dim}, w.norm);
  matrix(tensor::kRouterFirst, dim, dim, w.first);
  matrix(tensor::kRouterSecond, dim, dim, w.second);
  matrix(tensor::kRouterOut, c.experts.n_routed(), dim, w.out);
}

RouterMlp::RouterMlp(Sublayer& sublayer) : s_(sublayer) {
  for (Tensor* each : {&down_, &hidden_})
    *each = s_.ops.new_tensor(s_.n, s_.config.experts.router_dim, TensorRole::kLogits);
}

void RouterMlp::forward(int i, const NormedInput& h, const RouterMlpWeights& w, Tensor logits) {
  const Tensor state = s_.carried;
  const LinearTarget down = w.down.into(i > 0 ? down_ : state);
  s_.ops.norm_linear(h, {&down, 1});
  if (i > 0) {
    s_.ops.scale_columns(state, *w.scale);
    s_.ops.add(state, down_, 1.0f);
  }
  s_.ops.norm(state, norm_params(s_.config, w.norm), hidden_);
  const LinearTarget first = w.first.into(down_), second = w.second.into(hidden_),
                     out = w.out.into(logits);
  s_.ops.linear(hidden_, {&first, 1});
  s_.ops.activate(down_, Activation::kGelu);
  s_.ops.linear(down_, {&second, 1});
  s_.ops.activate(hidden_, Activation::kGelu);
  s_.ops.linear(hidden_, {&out, 1});
}

}  // namespace penstock
