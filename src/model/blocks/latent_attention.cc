#include "model/blocks/latent_attention.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {

void visit(TensorVisitor& v, LatentWeights& w) {
  const auto& c = v.config();
  const LatentConfig& l = c.latent;
  const int dim = c.model_dim, each = l.plain_dim + l.rope_dim;
  const Shard::Range heads = v.cuts().heads(v.layer());
  const WeightRole role = WeightRole::kLatent;
  const Cut own = rows_of(times(heads, each));
  const RotatedTails tails{c.n_heads, l.plain_dim, l.rope_dim};
  if (l.query_rank > 0) {
    v.linear({&tensor::kQueryA, role, l.query_rank, dim, {}, Site::kAttention}, w.query);
    v.norm({&tensor::kQueryANorm, l.query_rank}, w.query_norm);
    v.linear({.name = &tensor::kQueryB,
              .role = role,
              .rows = c.n_heads * each,
              .cols = l.query_rank,
              .cut = own,
              .tails = tails},
             w.q);
  } else {
    v.linear({.name = &tensor::kQ,
              .role = WeightRole::kQ,
              .rows = c.n_heads * each,
              .cols = dim,
              .cut = own,
              .site = Site::kAttention,
              .tails = tails},
             w.q);
  }
  v.joined({.name = &tensor::kLatentA, .role = role, .tails = {1, l.kv_rank, l.rope_dim}},
           {{{kNoName, role, l.kv_rank, dim, {}, Site::kAttention}, &w.latent},
            {{kNoName, role, l.rope_dim, dim, {}, Site::kAttention}, &w.rope}});
  v.norm({&tensor::kLatentANorm, l.kv_rank}, w.latent_norm);
  v.heads({&tensor::kLatentKeys, &tensor::kLatentValues, &tensor::kLatentB, c.n_heads, l.kv_rank,
           l.plain_dim, l.value_dim, heads},
          w.absorb, w.values);
  v.linear({&tensor::kO, WeightRole::kO, dim, c.n_heads * l.value_dim,
            columns_of(times(heads, l.value_dim)), Site::kAttentionOut, Part::kO},
           w.o);
}

namespace {
constexpr float kLatentNormEps = 1e-6f;  // independent of the other norms

NormParams latent_norm(const NormWeights& norm) {
  return {norm.weight.get(), nullptr, kLatentNormEps, false};
}
}  // namespace

LatentAttentionBlock::LatentAttentionBlock(Sublayer& sublayer) : s_(sublayer) {
  const LatentConfig& latent = s_.config.latent;
  const int heads = s_.config.n_heads;
  q_ = s_.ops.new_tensor(s_.n, s_.config.q_dim());
  k_ = s_.ops.new_tensor(s_.n, s_.config.kv_dim());
  if (latent.query_rank > 0) query_latent_ = s_.ops.new_tensor(s_.n, latent.query_rank);
  queries_ = s_.ops.new_tensor(s_.n, heads * (latent.plain_dim + latent.rope_dim));
  values_ = s_.ops.new_tensor(s_.n, heads * latent.value_dim);
  attended_ = s_.ops.new_tensor(s_.n, heads * s_.config.cache_value_dim());
}

// queries_ = all heads' queries; k_ = the latent, and the rotated part before its rotation.
void LatentAttentionBlock::project(const LatentWeights& w, const NormedInput& h) {
  const LatentConfig& l = s_.config.latent;
  const Tensor latent = k_.columns(0, l.kv_rank);
  const bool from_latent = l.query_rank > 0;
  const LinearTarget targets[] = {from_latent ? w.query.into(query_latent_) : w.q.into(queries_),
                                  w.latent.into(latent),
                                  w.rope.into(k_.columns(l.kv_rank, l.rope_dim))};
  s_.ops.norm_linear(h, targets);
  s_.ops.norm(latent, latent_norm(w.latent_norm), latent);
  if (!from_latent) return;
  s_.ops.norm(query_latent_, latent_norm(w.query_norm), query_latent_);
  const LinearTarget queries = w.q.into(queries_);
  s_.ops.linear(query_latent_, {&queries, 1});
}

void LatentAttentionBlock::forward(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const LayerWeights& layer = s_.weights.layers[i];
  const LatentWeights& w = layer.latent;
  const LatentConfig& l = s_.config.latent;
  project(w, h);
  // Heads as rows: a query is its plain part projected to the latent, followed by the rotated part,
  // in the layout of keys.
  const Tensor plain = queries_.reshaped(l.plain_dim + l.rope_dim),
               query = q_.reshaped(s_.config.head_dim);
  s_.ops.copy(plain.columns(l.plain_dim, l.rope_dim), query.columns(l.kv_rank, l.rope_dim));
  s_.ops.linear_by_head(plain.columns(0, l.plain_dim), w.absorb, query.columns(0, l.kv_rank));
  const int rope = s_.config.layers[i].rope;
  s_.ops.rope_and_store(q_, k_, Tensor(), rope < 0 ? nullptr : &s_.weights.ropes[rope], s_.cache,
                        i);
  if (s_.config.layers[i].query_scale)
    s_.ops.scale_by_position(q_, s_.config.attention.query_scale);
  s_.ops.attend(q_, s_.cache,
                {i, s_.config.n_heads, s_.config.attention.scale, 0.0f, nullptr, nullptr},
                attended_);
  s_.ops.linear_by_head(attended_.reshaped(l.kv_rank), w.values, values_.reshaped(l.value_dim));
  s_.add_product(values_, w.o, x, layer.attn_post_norm, next);
}

}  // namespace penstock
