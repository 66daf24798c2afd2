#include "model/blocks/experts.h"

#include <algorithm>

#include "model/blocks/cuts.h"
#include "model/blocks/difference.h"
#include "model/blocks/weights.h"

namespace penstock {

std::string_view difference(const ExpertsConfig& a, const ExpertsConfig& b) {
  return first_difference(
      {{"experts", a.count == b.count && a.ffn_dim == b.ffn_dim && a.latent_dim == b.latent_dim &&
                       a.shared_dim == b.shared_dim && a.shared_gate == b.shared_gate &&
                       a.shared_factor == b.shared_factor && a.router_softcap == b.router_softcap &&
                       a.beside_dense == b.beside_dense && a.normed == b.normed &&
                       a.n_identities == b.n_identities && a.n_pinned == b.n_pinned &&
                       a.scaled == b.scaled && a.idle == b.idle &&
                       a.router_factor == b.router_factor && a.router_dim == b.router_dim &&
                       a.group_size == b.group_size && a.group_dim == b.group_dim &&
                       a.group_factor == b.group_factor && a.normed_latent == b.normed_latent &&
                       a.shortcut == b.shortcut && a.routes_early == b.routes_early &&
                       a.reads_early == b.reads_early},
       {"choice of experts",
        (a.count == 0 || a.routing == b.routing) && a.selection_bias == b.selection_bias}});
}

namespace {

constexpr float kPinnedBias = 1e4f;  // beyond all scores, which are below 1

void visit_shared_experts(TensorVisitor& v, MixtureWeights& w) {
  const auto& c = v.config();
  const int dim = c.model_dim, width = c.experts.shared_dim;
  const Shard::Range own = v.cuts().shared_ffn();
  const WeightRole wide = WeightRole::kGateUp;
  const LinearSpec gate{&tensor::kSharedGate, wide, width, dim, rows_of(own), Site::kFeedForward},
      up{&tensor::kSharedUp, wide, width, dim, rows_of(own), Site::kFeedForward};
  if (c.ffn.gated) {
    v.joined({&tensor::kSharedGateUp, wide}, {{gate, &w.shared_gate}, {up, &w.shared_up}});
  } else {
    v.linear(up, w.shared_up);
  }
  v.linear({&tensor::kSharedDown, WeightRole::kDown, dim, width, columns_of(own)}, w.shared_down);
  if (!c.experts.shared_gate) return;
  v.linear(
      {&tensor::kSharedRouter, WeightRole::kRouter, 1, dim, {}, Site::kFeedForward, Part::kRouter},
      w.shared_router);
}

}  // namespace

void visit(TensorVisitor& v, MixtureWeights& w) {
  const auto& c = v.config();
  const int dim = c.model_dim, read = c.expert_dim();
  if (c.experts.router_dim > 0) {
    visit(v, w.router_mlp);
  } else {
    v.linear({.name = &tensor::kRouter,
              .role = WeightRole::kRouter,
              .rows = c.experts.n_routed(),
              .cols = dim,
              .site = Site::kFeedForward,
              .part = Part::kRouter,
              .bare = c.experts.bare_router},
             w.router);
  }
  if (c.experts.latent_dim > 0) {
    v.linear({&tensor::kExpertsIn, WeightRole::kLatent, read, dim}, w.in);
    v.linear({&tensor::kExpertsOut, WeightRole::kLatent, dim, read}, w.out);
  }
  if (c.experts.normed_latent) {
    v.norm({&tensor::kExpertsInNorm, read}, w.in_norm);
    v.norm({&tensor::kExpertResultNorm, read}, w.result_norm);
  }
  const int n_active = c.experts.routing.n_active;
  v.experts({&tensor::kExpertGate, &tensor::kExpertUp, &tensor::kExpertDown, c.experts.count,
             c.experts.ffn_dim, read, c.ffn.gated, n_active},
            w.gate, w.up, w.down);
  if (c.experts.group_size > 0) {
    const int n_groups = c.experts.count / c.experts.group_size;
    v.experts({&tensor::kGroupGate, &tensor::kGroupUp, &tensor::kGroupDown, n_groups,
               c.experts.group_dim, read, c.ffn.gated, std::min(n_active, n_groups), true},
              w.group_gate, w.group_up, w.group_down);
    v.unused(&tensor::kUnreadExpertBias);
  }
  const bool hashed = c.layers[static_cast<size_t>(v.layer())].hashed_experts;
  const int n_chosen = c.vocab_size * c.experts.routing.n_active;
  if (hashed)
    v.vector({.name = &tensor::kTokenExperts,
              .size = n_chosen,
              .part = {0, n_chosen},
              .shape = VectorSpec::Shape::kMatrix,
              .per_row = c.experts.routing.n_active,
              .form = VectorSpec::Form::kIndices,
              .n_indices = c.experts.count,
              .is_bias = true,
              .with_experts = true},
             w.token_experts);
  if (c.experts.selection_bias && !hashed)
    v.vector({.name = &tensor::kSelectionBias,
              .size = c.experts.n_routed(),
              .part = {0, c.experts.n_routed()},
              .shape = VectorSpec::Shape::kRow,  // ERNIE's layout
              .n_more = c.experts.n_pinned,
              .more = kPinnedBias,
              .is_bias = true,
              .with_experts = true},
             w.selection_bias);
  if (c.experts.scaled) v.number(&tensor::kWeightsFactor, w.factor);
  std::unique_ptr<Vector> none;
  if (c.experts.zero_bias)
    v.vector({.name = &tensor::kExpertsZero,
              .size = dim,
              .part = {0, dim},
              .form = VectorSpec::Form::kZeros,
              .is_bias = true},
             none);
  if (c.experts.shared_dim > 0) visit_shared_experts(v, w);
}

void visit(TensorVisitor& v, BesideWeights& w) {
  const auto& c = v.config();
  const int dim = c.model_dim;
  v.norm({&tensor::kExpertNorm, dim}, w.expert_norm);
  v.norm({&tensor::kDensePostNorm, dim}, w.dense_post_norm);
  v.norm({&tensor::kExpertPostNorm, dim}, w.expert_post_norm);
  v.vector({.name = &tensor::kRouterScale,
            .size = dim,
            .part = {0, dim},
            .divisor = std::sqrt(static_cast<float>(dim))},
           w.router_norm.weight);
  v.vector({.name = &tensor::kExpertScale,
            .size = c.experts.count,
            .part = {0, c.experts.count},
            .with_experts = true},
           w.expert_scale);
}

ExpertsBlock::ExpertsBlock(Sublayer& sublayer) : s_(sublayer) {
  const ModelConfig& config = s_.config;
  const int n = s_.n;
  router_ = s_.ops.new_tensor(n, config.experts.n_routed(), TensorRole::kLogits);
  if (config.experts.router_dim > 0) router_mlp_.emplace(s_);
  if (config.experts.latent_dim > 0) {
    latent_in_ = s_.ops.new_tensor(n, config.experts.latent_dim);
    latent_out_ = s_.ops.new_tensor(n, config.experts.latent_dim);
  }
  if (config.experts.shared_dim > 0) {
    shared_gate_ = s_.ops.new_tensor(n, config.experts.shared_dim);
    shared_up_ = s_.ops.new_tensor(n, config.experts.shared_dim);
  }
  if (config.experts.shared_dim > 0 || config.experts.beside_dense || config.experts.group_size > 0)
    shared_out_ = s_.ops.new_tensor(n, config.model_dim);
  if (config.experts.beside_dense) router_in_ = s_.ops.new_tensor(n, config.model_dim);
  if (config.experts.shared_gate) shared_weight_ = s_.ops.new_tensor(n, 1, TensorRole::kLogits);
}

void ExpertsBlock::forward(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const LayerWeights& layer = s_.weights.layers[static_cast<size_t>(i)];
  const bool has_shared = layer.experts.shared_down.weight != nullptr;
  if (!s_.config.experts.routes_early) choose(i, h);
  const MoeParams params = begin(i, h);
  if (has_shared) compute_shared(layer, h);
  mix(layer, h, params);
  if (s_.config.experts.group_size > 0) add_groups(layer, h, params);
  if (has_shared) s_.ops.add(s_.out, shared_out_, s_.config.experts.shared_factor);
  s_.add(s_.out, layer.experts.down.partial, x, layer.ffn_post_norm, next);
}

void ExpertsBlock::beside_dense(int i, const NormedInput& h, DenseBlock& dense, Tensor x) {
  const LayerWeights& layer = s_.weights.layers[i];
  const BesideWeights& beside = layer.beside;
  const LinearTarget down = layer.dense.down.into(shared_out_);
  s_.ops.linear(s_.padded(dense.hidden(i, h), layer.dense.down), {&down, 1});
  if (down.partial) s_.ops.all_reduce(shared_out_);
  s_.ops.norm(shared_out_, norm_params(s_.config, beside.dense_post_norm), shared_out_);
  // h is consumed: its tensor is reused for the experts' input.
  const NormedInput router{x, norm_params(s_.config, beside.router_norm), router_in_};
  const NormedInput input{x, norm_params(s_.config, beside.expert_norm), h.values};
  s_.ops.prepare(router);
  s_.ops.prepare(input);
  choose(i, router);
  mix(layer, input, begin(i, input));
  if (layer.experts.down.partial) s_.ops.all_reduce(s_.out);
  s_.ops.norm(s_.out, norm_params(s_.config, beside.expert_post_norm), s_.out);
  s_.ops.add(s_.out, shared_out_, 1.0f);
  s_.ops.norm(s_.out, norm_params(s_.config, layer.ffn_post_norm), s_.out);
  s_.ops.add_whole(x, s_.out, s_.config.residual.scale, nullptr);
}

void ExpertsBlock::choose(int i, const NormedInput& h) {
  const MixtureWeights& w = s_.weights.layers[static_cast<size_t>(i)].experts;
  if (router_mlp_) return router_mlp_->forward(i, h, w.router_mlp, router_);
  const LinearTarget router = w.router.into(router_);
  s_.ops.norm_linear(h, {&router, 1});
  const ExpertsConfig& c = s_.config.experts;
  if (c.router_softcap > 0 || c.router_factor != 1.0f)
    s_.ops.scale(router_, c.router_factor, c.router_softcap);
}

// Announces the mixture of what was chosen.
MoeParams ExpertsBlock::begin(int i, const NormedInput& h) {
  const LayerWeights& layer = s_.weights.layers[static_cast<size_t>(i)];
  MoeParams params;
  params.gate = layer.experts.gate.weights, params.gate_bias = layer.experts.gate.biases;
  params.up = layer.experts.up.weights, params.up_bias = layer.experts.up.biases;
  params.down = layer.experts.down.weights, params.down_bias = layer.experts.down.biases;
  params.gate_adapters = layer.experts.gate.adapters,
  params.up_adapters = layer.experts.up.adapters;
  params.down_adapters = layer.experts.down.adapters;
  params.routing = s_.config.experts.routing;
  params.routing.scale *= layer.experts.factor;
  params.selection_bias = layer.experts.selection_bias.get();
  params.token_experts = layer.experts.token_experts.get();
  params.expert_scale = layer.beside.expert_scale.get();
  params.activation =
      s_.config.layers[static_cast<size_t>(i)].expert_activation.value_or(layer.activation);
  params.down_lead = layer.experts.down.lead;
  params.mapped = layer.experts.down.mapped;
  params.on_host = layer.experts.down.on_host;
  params.idle_rest = s_.config.experts.idle;
  params.result_scale = layer.experts.result_norm.weight.get();
  params.result_eps = s_.config.norm.post_eps;
  Tensor x = latent_in_;
  if (layer.experts.in.weight == nullptr) {
    x = s_.ops.materialize(h);
  } else {
    const LinearTarget in = layer.experts.in.into(latent_in_);
    s_.ops.norm_linear(h, {&in, 1});
    if (layer.experts.in_norm)
      s_.ops.norm(latent_in_, norm_params(s_.config, layer.experts.in_norm), latent_in_);
  }
  s_.ops.start_moe(x, router_, params);
  return params;
}

// s_.out = weighted sum of the chosen experts.
void ExpertsBlock::mix(const LayerWeights& layer, const NormedInput& h, const MoeParams& params) {
  if (layer.experts.in.weight == nullptr) return s_.ops.moe(h.values, router_, params, s_.out);
  s_.ops.moe(latent_in_, router_, params, latent_out_);
  const LinearTarget out = layer.experts.out.into(s_.out);
  s_.ops.linear(latent_out_, {&out, 1});
}

void ExpertsBlock::add_groups(const LayerWeights& layer, const NormedInput& h, MoeParams params) {
  const MixtureWeights& w = layer.experts;
  params.gate = w.group_gate.weights, params.up = w.group_up.weights;
  params.down = w.group_down.weights;
  params.gate_adapters = params.up_adapters = params.down_adapters = {};
  params.down_lead = w.group_down.lead;
  params.routing.per_matrix = s_.config.experts.group_size;
  params.idle_rest = true;
  s_.ops.moe(h.values, router_, params, shared_out_);
  s_.ops.add(s_.out, shared_out_, s_.config.experts.group_factor);
}

// shared_out_ = output of the shared experts.
void ExpertsBlock::compute_shared(const LayerWeights& layer, const NormedInput& h) {
  gated_product(s_, h, layer.experts.shared_gate, layer.experts.shared_up, layer.activation,
                shared_gate_, shared_up_, kNoCutoff);
  if (layer.experts.shared_router.weight != nullptr) {
    const LinearTarget weight = layer.experts.shared_router.into(shared_weight_);
    s_.ops.norm_linear(h, {&weight, 1});
    s_.ops.gate_rows(shared_gate_, shared_weight_, Activation::kSigmoid);
  }
  const LinearTarget down = layer.experts.shared_down.into(shared_out_);
  s_.ops.linear(s_.padded(shared_gate_, layer.experts.shared_down), {&down, 1});
}

}  // namespace penstock
