#include "model/blocks/alt_up.h"

#include <utility>
#include <vector>

#include "model/blocks/cuts.h"
#include "model/blocks/difference.h"
#include "model/blocks/weights.h"

namespace penstock {

std::string_view difference(const AltUpConfig& a, const AltUpConfig& b) {
  return first_difference({{"streams", a.n_streams == b.n_streams && a.active == b.active &&
                                           a.laurel_rank == b.laurel_rank}});
}

void visit(TensorVisitor& v, AltUpWeights& w) {
  const auto& c = v.config();
  const int dim = c.model_dim, n = c.altup.n_streams, rank = c.altup.laurel_rank;
  const auto small = [](const TensorName* name, int rows, int cols) {  // never quantized
    return LinearSpec{name, WeightRole::kRouter, rows, cols, {}, Site::kNone, Part::kRouter};
  };
  v.norm({&tensor::kAltupRouterNorm, dim}, w.router_norm);
  v.linear(small(&tensor::kAltupRouter, n, dim), w.router);
  v.linear(small(&tensor::kAltupPredict, n * n, n), w.predict);
  v.linear(small(&tensor::kAltupCorrect, n, n), w.correct);
  v.ones(n, w.correct.bias);
  v.vector({.name = &tensor::kAltupScale,
            .size = dim,
            .part = {0, dim},
            .form = c.altup.correct_scale ? VectorSpec::Form::kPlain : VectorSpec::Form::kIgnored},
           w.correct_scale);
  v.linear(small(&tensor::kLaurelIn, rank, dim), w.laurel_in);
  v.linear(small(&tensor::kLaurelOut, dim, rank), w.laurel_out);
  v.norm({&tensor::kLaurelNorm, dim}, w.laurel_norm);
}

namespace {
// least mean square of a projected stream before it is rescaled to the first stream's magnitude
constexpr float kLeastSquare = 1e-5f;
}  // namespace

AltUp::AltUp(const ModelConfig& config, const ModelWeights& weights, int n_tokens, Ops& ops)
    : config_(config), weights_(weights), ops_(ops) {
  const int n = config.altup.n_streams, dim = config.model_dim;
  streams_ = ops.new_tensor(n_tokens, n * dim, TensorRole::kStream);
  predicted_ = ops.new_tensor(n_tokens, n * dim, TensorRole::kStream);
  other_ = ops.new_tensor(n_tokens, dim, TensorRole::kStream);
  projected_ = ops.new_tensor(n_tokens, dim, TensorRole::kStream);
  routed_ = ops.new_tensor(n_tokens, n, TensorRole::kLogits);
  mixing_ = ops.new_tensor(n_tokens, n * n, TensorRole::kLogits);
  correction_ = ops.new_tensor(n_tokens, n, TensorRole::kLogits);
  narrow_ = ops.new_tensor(n_tokens, config.altup.laurel_rank);
}

Tensor AltUp::stream(int index) const {
  return streams_.columns(index * config_.model_dim, config_.model_dim);
}

void AltUp::begin(Tensor x) {
  ops_.copy(x, stream(0));
  for (int s = 1; s < config_.altup.n_streams; ++s) {
    const LinearTarget target{weights_.streams_in[static_cast<size_t>(s) - 1].get(), nullptr,
                              projected_};
    ops_.linear(x, {&target, 1});
    ops_.match_magnitude(projected_, x, kLeastSquare);
    ops_.copy(projected_, stream(s));
  }
}

// routed_ = tanh(router norm(x) / model_dim).
void AltUp::route(const AltUpWeights& layer, Tensor x) {
  ops_.norm(x, norm_params(config_, layer.router_norm), other_);
  const LinearTarget router = layer.router.into(routed_);
  ops_.linear(other_, {&router, 1});
  ops_.scale(routed_, 1.0f / static_cast<float>(config_.model_dim), 1.0f);
}

void AltUp::predict(int layer, Tensor x) {
  const AltUpWeights& altup = weights_.layers[static_cast<size_t>(layer)].altup;
  route(altup, stream(config_.altup.active));
  const LinearTarget mixing = altup.predict.into(mixing_);
  ops_.linear(routed_, {&mixing, 1});
  ops_.copy(streams_, predicted_);
  ops_.add_mixed(streams_, mixing_, config_.model_dim, predicted_);
  std::swap(streams_, predicted_);
  ops_.copy(stream(config_.altup.active), x);
}

Tensor AltUp::laurel(int layer, const NormedInput& h) {
  const AltUpWeights& altup = weights_.layers[static_cast<size_t>(layer)].altup;
  const LinearTarget in = altup.laurel_in.into(narrow_), out = altup.laurel_out.into(projected_);
  ops_.norm_linear(h, {&in, 1});
  ops_.linear(narrow_, {&out, 1});
  ops_.norm(projected_, norm_params(config_, altup.laurel_norm), projected_);
  ops_.add(projected_, ops_.materialize(h), 1.0f);
  return projected_;
}

Tensor AltUp::correct(int layer, Tensor x) {
  const AltUpWeights& altup = weights_.layers[static_cast<size_t>(layer)].altup;
  const Tensor active = stream(config_.altup.active);
  route(altup, x);
  const LinearTarget correction = altup.correct.into(correction_);
  ops_.linear(routed_, {&correction, 1});
  ops_.copy(x, other_);
  ops_.add(other_, active, -1.0f);
  ops_.add_mixed(other_, correction_, config_.model_dim, streams_);
  ops_.copy(active, other_);
  if (altup.correct_scale != nullptr) ops_.scale_columns(other_, *altup.correct_scale);
  return other_;
}

void AltUp::add_to_others(Tensor delta) {
  for (int s = 1; s < config_.altup.n_streams; ++s) ops_.add(stream(s), delta, 1.0f);
}

void AltUp::merge(Tensor x) {
  ops_.copy(stream(0), x);
  for (int s = 1; s < config_.altup.n_streams; ++s) {
    const LinearTarget target{weights_.streams_out[static_cast<size_t>(s) - 1].get(), nullptr,
                              projected_};
    ops_.copy(stream(s), other_);
    ops_.linear(other_, {&target, 1});
    ops_.match_magnitude(projected_, stream(0), kLeastSquare);
    ops_.add(x, projected_, 1.0f);
  }
  ops_.scale(x, 1.0f / static_cast<float>(config_.altup.n_streams), 0.0f);
}

}  // namespace penstock
