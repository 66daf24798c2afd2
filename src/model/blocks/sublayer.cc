#include "model/blocks/sublayer.h"

#include <algorithm>

#include "model/blocks/difference.h"
#include "model/blocks/weights.h"

namespace penstock {

std::string_view difference(const NormConfig& a, const NormConfig& b) {
  return first_difference(
      {{"norms", nearly(a.eps, b.eps) && nearly(a.post_eps, b.post_eps) &&
                     a.layer_norm == b.layer_norm && a.biases == b.biases && a.bare == b.bare &&
                     a.gate_rank == b.gate_rank && a.sub_norms == b.sub_norms}});
}

std::string_view difference(const ResidualConfig& a, const ResidualConfig& b) {
  return first_difference(
      {{"norms",
        a.norms == b.norms && a.first_norm == b.first_norm && a.adds_twice == b.adds_twice},
       {"parallel layers", a.parallel == b.parallel && a.parallel_norms == b.parallel_norms},
       {"sums with norms", a.adds_to_norm == b.adds_to_norm && a.norm_factor == b.norm_factor},
       {"layers of one part", a.one_mixer == b.one_mixer},
       {"loops",
        a.recalls == b.recalls && a.stack_layers == b.stack_layers && a.low_passes == b.low_passes},
       {"residual scale", nearly(a.scale, b.scale)},
       {"scales of layers", a.layer_scales == b.layer_scales},
       {"weights of the stream",
        a.weighing == b.weighing && nearly(a.share_temperature, b.share_temperature)}});
}

std::string_view difference(const RoundingConfig& a, const RoundingConfig& b) {
  return first_difference({{"rounded activations", a.activations == b.activations}});
}

NormParams norm_params(const ModelConfig& config, const NormWeights& norm) {
  return {norm.weight.get(), norm.bias.get(), config.norm.eps, config.norm.layer_norm};
}

Sublayer::Sublayer(const ModelConfig& model, const ModelWeights& all, StepShape shape, KvCache& kv,
                   Ops& backend)
    : config(model),
      weights(all),
      cache(kv),
      ops(backend),
      n(shape.tokens),
      n_encoded(shape.encoded) {
  out = ops.new_tensor(n, config.model_dim);
  if (config.carried_dim > 0) carried = ops.new_tensor(n, config.carried_dim, TensorRole::kStream);
  if (weights.padding == 0) return;
  int values = 0;
  for (int i = 0; i < config.n_layers; ++i)
    values = std::max(values, config.n_heads_of(i) * config.latent_of(i).value_dim);
  const int grouped = config.compressed.n_groups * config.compressed.out_rank;
  int widest =
      std::max({config.q_dim(), values, grouped, config.widest_ffn(), config.experts.shared_dim});
  for (const LayerConfig& layer : config.layers)
    if (layer.mixer != nullptr) widest = std::max(widest, layer.mixer->widest_input(config));
  padded_ = ops.new_tensor(n, widest + weights.padding);
}

NormedInput Sublayer::rounded(const NormedInput& h) {
  if (!config.rounding.activations) return h;
  const Tensor values = ops.materialize(h);
  ops.round_int8(values);
  return {values, {}, values};
}

void Sublayer::multiply(Tensor x, float factor) {
  if (factor != 1.0f) ops.scale(x, factor, 0.0f);
}

void Sublayer::add_product(Tensor in, const LinearWeights& product, Tensor x,
                           const NormWeights& post, const NormedInput* next, float multiplier) {
  const LinearTarget target = product.into(out);
  if (!post)
    return ops.linear_add(padded(in, product), target, x, config.residual.scale * multiplier, next);
  ops.linear(padded(in, product), {&target, 1});
  add(out, product.partial, x, post, next);
}

Tensor Sublayer::padded(Tensor x, const LinearWeights& product) {
  const int cols = product.weight->cols();
  if (cols == x.cols) return x;
  const Tensor whole = padded_.narrowed(cols);
  ops.clear(whole);
  ops.copy(x, whole.columns(product.lead, x.cols));
  return whole;
}

void Sublayer::add(Tensor delta, bool partial, Tensor x, const NormWeights& post,
                   const NormedInput* next) {
  if (!post && partial) return ops.add_shares(x, delta, config.residual.scale, next);
  if (!post) return ops.add_whole(x, delta, config.residual.scale, next);
  if (partial) ops.all_reduce(delta);
  if (post.scales) {
    ops.scale_columns(delta, *post.weight);
  } else {
    NormParams params = norm_params(config, post);
    if (config.norm.post_eps > 0) params.eps = config.norm.post_eps;
    ops.norm(delta, params, delta);
  }
  ops.add_whole(x, delta, config.residual.scale, next);
}

}  // namespace penstock
