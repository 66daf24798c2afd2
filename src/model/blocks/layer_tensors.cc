#include "model/blocks/layer_tensors.h"

#include "model/blocks/weights.h"

namespace penstock {

namespace {

// Visits the blocks between a layer's first two norms.
void visit_mixer(TensorVisitor& v, LayerWeights& w) {
  const ModelConfig& c = v.config();
  const LayerConfig& kind = c.layers[static_cast<size_t>(v.layer())];
  if (kind.shared_layer >= 0) {
    visit(v, w.shared);
  } else if (kind.attention && c.profiles.width > 0) {
    visit(v, w.profiles, w.ffn_norm);
  } else if (kind.attention && c.compressed.query_rank > 0) {
    visit(v, w.compressed);
  } else if (kind.attention && c.convolved.taps > 0) {
    visit(v, w.convolved);
  } else if (kind.attention && c.latent.kv_rank > 0) {
    visit(v, w.latent);
  } else if (kind.attention && c.attention.differential) {
    visit(v, w.differential);
  } else if (kind.attention) {
    visit(v, w.attention);
  }
  if (kind.mixer == nullptr) return;
  if (w.mixer == nullptr) w.mixer = kind.mixer->empty_weights();
  kind.mixer->visit(v, *w.mixer);
}

}  // namespace

namespace {

void visit_scale(TensorVisitor& v, const TensorName* name, NormWeights& w) {
  v.vector({.name = name, .size = v.config().model_dim, .part = {0, v.config().model_dim}},
           w.weight);
  w.scales = true;
}

}  // namespace

void visit_feed_forward(TensorVisitor& v, LayerWeights& w) {
  const ModelConfig& c = v.config();
  const bool moe = c.layers[static_cast<size_t>(v.layer())].moe;
  v.activation(w.activation);
  const bool both = c.experts.beside_dense || c.experts.shortcut || c.experts.reads_early;
  if (!moe || both) visit(v, w.dense);
  if (moe && c.experts.beside_dense) visit(v, w.beside);
  if (moe && c.experts.reads_early)
    v.norm({&tensor::kExpertNorm, c.model_dim}, w.beside.expert_norm);
  if (moe) visit(v, w.experts);
}

// Calls the visitor for every tensor of its layer.
void visit_layer(TensorVisitor& v, LayerWeights& w) {
  const ModelConfig& c = v.config();
  const int i = v.layer(), dim = c.model_dim;
  const LayerConfig& kind = c.layers[static_cast<size_t>(i)];
  if (c.sphere.stored > 0) return visit(v, w.sphere);
  const NormPlacement norms = kind.norms.value_or(c.residual.norms);
  const bool post = norms == NormPlacement::kPost || norms == NormPlacement::kBoth;
  const bool pre = norms != NormPlacement::kPost && norms != NormPlacement::kNone;
  const bool begins = c.residual.one_mixer || !kind.has_no_mixer();
  if (pre && begins && (i > 0 || c.residual.first_norm))
    v.norm({&tensor::kAttnNorm, dim, Part::kAttentionNorm}, w.attn_norm);
  if (c.norm.gate_rank > 0) visit_attention_gate(v, w.attn_gate);
  visit_mixer(v, w);
  if (c.residual.adds_twice) v.norm({&tensor::kAttnAgainNorm, dim}, w.attn_again_norm);
  if (post) v.norm({&tensor::kAttnPostNorm, dim}, w.attn_post_norm);
  if (c.residual.column_scales) visit_scale(v, &tensor::kAttnScale, w.attn_post_norm);
  if (pre && (!c.residual.parallel || c.residual.parallel_norms) && !c.residual.one_mixer &&
      kind.feed_forward) {
    const bool gated = c.norm.gate_rank > 0 && kind.moe;
    v.norm({gated ? &tensor::kGatedFfnNorm : &tensor::kFfnNorm, dim, Part::kFeedForwardNorm},
           w.ffn_norm);
    if (gated) visit_experts_gate(v, w.experts_gate);
  }
  if (c.has_feed_forward(i)) visit_feed_forward(v, w);
  if (post || (c.experts.normed && kind.moe)) v.norm({&tensor::kFfnPostNorm, dim}, w.ffn_post_norm);
  if (c.experts.normed && !kind.moe) v.unused(&tensor::kFfnPostNorm);
  if (c.residual.column_scales) visit_scale(v, &tensor::kFfnScale, w.ffn_post_norm);
  if (c.per_layer.dim > 0) visit(v, w.per_layer);
  if (c.altup.n_streams > 0) visit(v, w.altup);
  if (c.streams.count > 0) visit(v, w.streams);
  if (c.mixed_streams.count > 0) visit(v, w.mixed_streams);
  if (kind.ngrams >= 0) visit(v, w.ngrams);
  if (c.residual.weighing != ResidualWeighing::kNone) visit(v, w.weighted);
  if (c.residual.layer_scales) v.number(&tensor::kOutputScale, w.output_scale);
}

}  // namespace penstock
