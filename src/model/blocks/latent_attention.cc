#include "model/blocks/latent_attention.h"

#include <array>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {

namespace {

// Every rank has all of it, and selects the same tokens.
void visit_indexer(TensorVisitor& v, IndexerWeights& w) {
  const LatentConfig& l = v.config().latent;
  const IndexerConfig& indexer = l.indexer;
  const int dim = v.config().model_dim;
  const Shard::Range all{0, indexer.head_dim};
  v.linear(
      {&tensor::kIndexQuery, WeightRole::kLatent, indexer.n_heads * indexer.head_dim, l.query_rank},
      w.query);
  v.linear({&tensor::kIndexKey, WeightRole::kLatent, indexer.head_dim, dim, {}, Site::kAttention},
           w.key);
  v.vector({&tensor::kIndexKeyNorm, indexer.head_dim, all}, w.key_norm.weight);
  v.vector(
      {.name = &tensor::kIndexKeyNormBias, .size = indexer.head_dim, .part = all, .is_bias = true},
      w.key_norm.bias);
  v.linear(
      {&tensor::kIndexWeights, WeightRole::kRouter, indexer.n_heads, dim, {}, Site::kAttention},
      w.weights);
  if (!indexer.gated) return;
  v.linear({.name = &tensor::kIndexGate,
            .role = WeightRole::kRouter,
            .rows = indexer.head_dim,
            .cols = dim,
            .site = Site::kAttention,
            .part = Part::kRouter,
            .bare = true},
           w.gate);
  const int places = indexer.pool * indexer.head_dim;
  v.vector({.name = &tensor::kIndexPlaces,
            .size = places,
            .part = {0, places},
            .shape = VectorSpec::Shape::kMatrix,
            .per_row = indexer.head_dim},
           w.places);
}

}  // namespace

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
  if (l.rope_dim > 0) {
    v.joined({.name = &tensor::kLatentA, .role = role, .tails = {1, l.kv_rank, l.rope_dim}},
             {{{kNoName, role, l.kv_rank, dim, {}, Site::kAttention}, &w.latent},
              {{kNoName, role, l.rope_dim, dim, {}, Site::kAttention}, &w.rope}});
  } else {
    v.linear({&tensor::kLatentA, role, l.kv_rank, dim, {}, Site::kAttention}, w.latent);
  }
  v.norm({&tensor::kLatentANorm, l.kv_rank}, w.latent_norm);
  v.heads({&tensor::kLatentKeys, &tensor::kLatentValues, &tensor::kLatentB, c.n_heads, l.kv_rank,
           l.plain_dim, l.value_dim, heads},
          w.absorb, w.values);
  v.linear({&tensor::kO, WeightRole::kO, dim, c.n_heads * l.value_dim,
            columns_of(times(heads, l.value_dim)), Site::kAttentionOut, Part::kO},
           w.o);
  if (c.layers[static_cast<size_t>(v.layer())].selecting_layer == v.layer())
    visit_indexer(v, w.indexer);
}

LatentAttentionBlock::LatentAttentionBlock(Sublayer& sublayer) : s_(sublayer) {
  const LatentConfig& latent = s_.config.latent;
  const int heads = s_.config.n_heads;
  q_ = s_.ops.new_tensor(s_.n, s_.config.q_dim());
  k_ = s_.ops.new_tensor(s_.n, s_.config.kv_dim());
  if (latent.query_rank > 0) query_latent_ = s_.ops.new_tensor(s_.n, latent.query_rank);
  queries_ = s_.ops.new_tensor(s_.n, heads * (latent.plain_dim + latent.rope_dim));
  values_ = s_.ops.new_tensor(s_.n, heads * latent.value_dim);
  attended_ = s_.ops.new_tensor(s_.n, heads * s_.config.cache_value_dim());
  const IndexerConfig& indexer = latent.indexer;
  if (indexer.top_k == 0) return;
  index_q_ = s_.ops.new_tensor(s_.n, indexer.n_heads * indexer.head_dim);
  index_k_ = s_.ops.new_tensor(s_.n, indexer.head_dim);
  index_weights_ = s_.ops.new_tensor(s_.n, indexer.n_heads);
  if (indexer.gated) {
    token_keys_ = s_.ops.new_tensor(s_.n, indexer.head_dim);
    index_gates_ = s_.ops.new_tensor(s_.n, indexer.head_dim);
  }
  selected_ = s_.ops.new_tensor(
      s_.n, indexer.select_params(s_.cache, s_.cache.spec().first_index_layer).most());
}

bool LatentAttentionBlock::has_indexer(int i) const {
  return s_.config.layers[static_cast<size_t>(i)].selecting_layer == i;
}

// queries_ = all heads' queries; k_ = the latent, and the rotated part before its rotation; of an
// indexer likewise.
void LatentAttentionBlock::project(int i, const NormedInput& h) {
  const LatentWeights& w = s_.weights.layers[i].latent;
  const LatentConfig& l = s_.config.latent;
  const Tensor latent = k_.columns(0, l.kv_rank);
  const bool from_latent = l.query_rank > 0, indexes = has_indexer(i);
  std::array<LinearTarget, 6> targets = {
      from_latent ? w.query.into(query_latent_) : w.q.into(queries_), w.latent.into(latent)};
  size_t n = 2;
  if (l.rope_dim > 0) targets[n++] = w.rope.into(k_.columns(l.kv_rank, l.rope_dim));
  if (indexes) {
    targets[n++] = w.indexer.key.into(l.indexer.gated ? token_keys_ : index_k_);
    targets[n++] = w.indexer.weights.into(index_weights_);
    if (l.indexer.gated) targets[n++] = w.indexer.gate.into(index_gates_);
  }
  s_.ops.norm_linear(h, std::span(targets).first(n));
  const auto norm = [&](const NormWeights& of, Tensor x) {
    s_.ops.norm(x, {of.weight.get(), nullptr, l.norm_eps, false}, x);
  };
  norm(w.latent_norm, latent);
  if (!from_latent) return;
  norm(w.query_norm, query_latent_);
  const LinearTarget queries[] = {w.q.into(queries_), w.indexer.query.into(index_q_)};
  s_.ops.linear(query_latent_, std::span(queries).first(indexes ? 2 : 1));
}

// Stores the indexer's keys and selects the tokens that this layer and those without an indexer
// behind it attend to.
void LatentAttentionBlock::select(int i) {
  constexpr float kKeyNormEps = 1e-6f;  // independent of the other norms
  const IndexerWeights& w = s_.weights.layers[i].latent.indexer;
  const IndexerConfig& indexer = s_.config.latent.indexer;
  const int keys = s_.cache.spec().first_index_layer + i;
  const Tensor of_tokens = indexer.gated ? token_keys_ : index_k_;
  s_.ops.norm(of_tokens, {w.key_norm.weight.get(), w.key_norm.bias.get(), kKeyNormEps, true},
              of_tokens);
  if (indexer.gated)
    s_.ops.pool_keys(token_keys_, index_gates_, {w.places.get(), indexer.pool, i}, s_.cache,
                     index_k_);
  const RopeParams* const rope = s_.config.layers[i].rope < 0 ? nullptr : &s_.weights.index_rope;
  s_.ops.rope_and_store(index_q_, index_k_, Tensor(), rope, s_.cache, keys);
  s_.ops.select(index_q_, index_weights_, s_.cache, indexer.select_params(s_.cache, keys),
                selected_);
  selecting_layer_ = i;
}

// Nothing selected: all tokens. So does a layer without an indexer that is computed by itself, as
// for calibration.
Tensor LatentAttentionBlock::selection_of(int i) const {
  const int from = s_.config.layers[static_cast<size_t>(i)].selecting_layer;
  return from >= 0 && from == selecting_layer_ ? selected_ : Tensor();
}

void LatentAttentionBlock::forward(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const LayerWeights& layer = s_.weights.layers[i];
  const LatentWeights& w = layer.latent;
  const LatentConfig& l = s_.config.latent;
  project(i, h);
  if (has_indexer(i)) select(i);
  // Heads as rows: a query is its plain part projected to the latent, followed by the rotated part,
  // in the layout of keys.
  const Tensor plain = queries_.reshaped(l.plain_dim + l.rope_dim),
               query = q_.reshaped(s_.config.head_dim);
  if (l.rope_dim > 0)
    s_.ops.copy(plain.columns(l.plain_dim, l.rope_dim), query.columns(l.kv_rank, l.rope_dim));
  s_.ops.linear_by_head(plain.columns(0, l.plain_dim), w.absorb, query.columns(0, l.kv_rank));
  const int rope = s_.config.layers[i].rope;
  s_.ops.rope_and_store(q_, k_, Tensor(), rope < 0 ? nullptr : &s_.weights.ropes[rope], s_.cache,
                        i);
  if (s_.config.layers[i].query_scale)
    s_.ops.scale_by_position(q_, s_.config.attention.query_scale);
  s_.ops.attend(q_, s_.cache,
                {.layer = i,
                 .n_heads = s_.config.n_heads,
                 .scale = s_.config.attention.scale,
                 .selected = selection_of(i),
                 .selected_pool = l.indexer.pool},
                attended_);
  s_.ops.linear_by_head(attended_.reshaped(l.kv_rank), w.values, values_.reshaped(l.value_dim));
  s_.add_product(values_, w.o, x, layer.attn_post_norm, next);
}

}  // namespace penstock
