#include "model/blocks/weighted_residual.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

constexpr float kLeastKept = 1e-3f;  // under the root

}  // namespace

void visit(TensorVisitor& v, WeightedResidualWeights& w) {
  const ModelConfig& c = v.config();
  const int dim = c.model_dim;
  if (c.residual.weighing == ResidualWeighing::kShares) {
    const float temperature = c.residual.share_temperature;
    v.shares({&tensor::kAttnShares, dim, temperature, kLeastKept}, w.attention.kept,
             w.attention.added);
    v.shares({&tensor::kFfnShares, dim, temperature, kLeastKept}, w.feed_forward.kept,
             w.feed_forward.added);
    return v.norm({&tensor::kFfnShareScale, dim}, w.ffn_scale);
  }
  std::unique_ptr<Vector>* const of_attention[] = {&w.attention.kept, &w.attention.added};
  std::unique_ptr<Vector>* const of_feed_forward[] = {&w.feed_forward.kept, &w.feed_forward.added};
  v.affine({dim,
            {{&tensor::kAttnKeptScale, &tensor::kAttnKeptOffset},
             {&tensor::kAttnAddedScale, &tensor::kAttnAddedOffset}}},
           of_attention, w.attention.offset);
  v.affine({dim,
            {{&tensor::kFfnKeptScale, &tensor::kFfnKeptOffset},
             {&tensor::kFfnAddedScale, &tensor::kFfnAddedOffset}}},
           of_feed_forward, w.feed_forward.offset);
}

void visit_input(TensorVisitor& v, ColumnWeights& w) {
  std::unique_ptr<Vector>* const scales[] = {&w.kept};
  v.affine({v.config().model_dim, {{&tensor::kInputScale, &tensor::kInputOffset}}}, scales,
           w.offset);
}

WeightedResidual::WeightedResidual(const ModelConfig& config, int n, Ops& ops)
    : config_(config), ops_(ops), out_(ops.new_tensor(n, config.model_dim, TensorRole::kStream)) {}

void WeightedResidual::begin(const ColumnWeights& w, Tensor x) {
  ops_.scale_columns(x, *w.kept);
  ops_.add_columns(x, *w.offset);
}

Tensor WeightedResidual::cleared() {
  ops_.clear(out_);
  return out_;
}

void WeightedResidual::norm(const Vector* scale, Tensor y) {
  if (scale != nullptr) ops_.scale_columns(y, *scale);
  ops_.norm(y, {nullptr, nullptr, config_.norm.post_eps}, y);
}

void WeightedResidual::join(const ColumnWeights& w, Tensor y, Tensor x) {
  ops_.scale_columns(x, *w.kept);
  ops_.scale_columns(y, *w.added);
  ops_.add(x, y, 1.0f);
  if (w.offset != nullptr) ops_.add_columns(x, *w.offset);
}

}  // namespace penstock
