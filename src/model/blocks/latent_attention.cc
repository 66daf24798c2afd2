#include "model/blocks/latent_attention.h"

#include <algorithm>
#include <array>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {

namespace {

void visit_scales(TensorVisitor& v, const TensorName& slopes, const TensorName& biases, int n,
                  Shard::Range own, HeadScales& w) {
  v.vector({&slopes, n, own}, w.slopes);
  v.vector({&biases, n, own}, w.biases);
}

void visit_input_norm(TensorVisitor& v, NormWeights& w) {
  const int dim = v.config().model_dim;
  v.vector({&tensor::kIndexInNorm, dim, {0, dim}}, w.weight);
  v.vector({.name = &tensor::kIndexInNormBias, .size = dim, .part = {0, dim}, .is_bias = true},
           w.bias);
}

// Every rank has all of it, and selects the same tokens.
void visit_indexer(TensorVisitor& v, IndexerWeights& w) {
  const LatentConfig& l = v.config().latent_of(v.layer());
  const IndexerConfig& indexer = v.config().latent.indexer;
  const int dim = v.config().model_dim;
  const Shard::Range all{0, indexer.head_dim};
  v.linear({&tensor::kIndexQuery, WeightRole::kLatent, indexer.n_heads * indexer.head_dim,
            indexer.from_input ? dim : l.query_rank},
           w.query);
  if (indexer.from_input) {
    visit_input_norm(v, w.in_norm);
    visit_scales(v, tensor::kIndexSlopes, tensor::kIndexBiases, indexer.n_heads,
                 {0, indexer.n_heads}, w.scales);
  }
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

void visit_latent(TensorVisitor& v, const LatentConfig& l, LatentWeights& w) {
  const WeightRole role = WeightRole::kLatent;
  const int dim = v.config().model_dim;
  if (l.rope_dim > 0) {
    v.joined({.name = &tensor::kLatentA, .role = role, .tails = {1, l.kv_rank, l.rope_dim}},
             {{{kNoName, role, l.kv_rank, dim, {}, Site::kAttention}, &w.latent},
              {{kNoName, role, l.rope_dim, dim, {}, Site::kAttention}, &w.rope}});
  } else {
    v.linear({&tensor::kLatentA, role, l.kv_rank, dim, {}, Site::kAttention}, w.latent);
  }
  v.norm({&tensor::kLatentANorm, l.kv_rank}, w.latent_norm);
  if (l.norms_rotated) v.norm({&tensor::kLatentRopeNorm, l.rope_dim}, w.rope_norm);
}

// Of each head its query, then its gates.
void visit_gated_queries(TensorVisitor& v, const LatentConfig& l, LatentWeights& w) {
  const int each = l.plain_dim + l.rope_dim, n = v.config().n_heads_of(v.layer()),
            cols = 2 * l.query_rank;
  const Shard::Range heads = v.cuts().heads(v.layer());
  const WeightRole role = WeightRole::kLatent;
  JoinedSpec both{&tensor::kQueryB, role};
  const int stride = each + l.value_dim;
  for (int h = 0; h < n; ++h)
    for (int d = 0; d < each; ++d) both.order.push_back(h * stride + d);
  for (int h = 0; h < n; ++h)
    for (int d = 0; d < l.value_dim; ++d) both.order.push_back(h * stride + each + d);
  v.joined(both, {{{kNoName, role, n * each, cols, rows_of(times(heads, each))}, &w.q},
                  {{kNoName, role, n * l.value_dim, cols, rows_of(times(heads, l.value_dim))},
                   &w.gates}});
}

}  // namespace

void visit(TensorVisitor& v, LatentWeights& w) {
  const auto& c = v.config();
  const LayerConfig& kind = c.layers[static_cast<size_t>(v.layer())];
  const LatentConfig& l = c.latent_of(v.layer());
  const int dim = c.model_dim, each = l.plain_dim + l.rope_dim, n = c.n_heads_of(v.layer());
  const Shard::Range heads = v.cuts().heads(v.layer());
  const WeightRole role = WeightRole::kLatent;
  const Cut own = rows_of(times(heads, each));
  const RotatedTails tails{n, l.plain_dim, l.rope_dim};
  if (l.query_rank > 0) {
    v.linear({&tensor::kQueryA, role, l.query_rank, dim, {}, Site::kAttention}, w.query);
    v.norm({&tensor::kQueryANorm, l.query_rank}, w.query_norm);
    if (l.gates_of_latent) {
      visit_gated_queries(v, l, w);
    } else {
      v.linear({.name = &tensor::kQueryB,
                .role = role,
                .rows = n * each,
                .cols = l.query_rank,
                .cut = own,
                .tails = tails},
               w.q);
    }
  } else {
    v.linear({.name = &tensor::kQ,
              .role = WeightRole::kQ,
              .rows = n * each,
              .cols = dim,
              .cut = own,
              .site = Site::kAttention,
              .tails = tails},
             w.q);
  }
  if (kind.kv_layer < 0) visit_latent(v, l, w);
  if (c.attention.learned_query_scale)
    visit_scales(v, tensor::kQuerySlopes, tensor::kQueryBiases, n, heads, w.scales);
  v.heads({&tensor::kLatentKeys, &tensor::kLatentValues, &tensor::kLatentB, n, l.kv_rank,
           l.plain_dim, l.value_dim, heads},
          w.absorb, w.values);
  v.linear({&tensor::kO, WeightRole::kO, dim, n * l.value_dim,
            columns_of(times(heads, l.value_dim)), Site::kAttentionOut, Part::kO},
           w.o);
  if (c.attention.head_gates)
    v.linear({&tensor::kGates, WeightRole::kRouter, n, dim, rows_of(heads), Site::kAttention},
             w.gates);
  if (c.attention.value_gates && !l.gates_of_latent)
    v.linear({&tensor::kGates, role, n * l.value_dim, dim, rows_of(times(heads, l.value_dim)),
              Site::kAttention},
             w.gates);
  if (c.attention.sinks && kind.has_sinks)
    v.vector({.name = &tensor::kSinks, .size = n, .part = heads, .is_bias = true}, w.sinks);
  if (kind.selecting_layer == v.layer()) visit_indexer(v, w.indexer);
}

LatentAttentionBlock::LatentAttentionBlock(Sublayer& sublayer) : s_(sublayer) {
  const ModelConfig& c = s_.config;
  q_ = s_.ops.new_tensor(s_.n, c.q_dim());
  k_ = s_.ops.new_tensor(s_.n, c.kv_dim());
  const int rank =
      widest([](int, const LatentConfig& l) { return (l.gates_of_latent ? 2 : 1) * l.query_rank; });
  if (rank > 0) query_latent_ = s_.ops.new_tensor(s_.n, rank);
  queries_ = s_.ops.new_tensor(s_.n, widest([&](int i, const LatentConfig& l) {
                                 return c.n_heads_of(i) * (l.plain_dim + l.rope_dim);
                               }));
  values_ = s_.ops.new_tensor(
      s_.n, widest([&](int i, const LatentConfig& l) { return c.n_heads_of(i) * l.value_dim; }));
  attended_ = s_.ops.new_tensor(
      s_.n, widest([&](int i, const LatentConfig& l) { return c.n_heads_of(i) * l.kv_rank; }));
  if (c.attention.head_gates) gates_ = s_.ops.new_tensor(s_.n, c.most_heads());
  if (c.attention.value_gates) gates_ = s_.ops.new_tensor(s_.n, values_.cols);
  const IndexerConfig& indexer = s_.config.latent.indexer;
  if (indexer.top_k == 0) return;
  index_q_ = s_.ops.new_tensor(s_.n, indexer.n_heads * indexer.head_dim);
  index_k_ = s_.ops.new_tensor(s_.n, indexer.head_dim);
  index_weights_ = s_.ops.new_tensor(s_.n, indexer.n_heads);
  if (indexer.from_input) index_in_ = s_.ops.new_tensor(s_.n, s_.config.model_dim);
  if (indexer.gated) {
    token_keys_ = s_.ops.new_tensor(s_.n, indexer.head_dim);
    index_gates_ = s_.ops.new_tensor(s_.n, indexer.head_dim);
  }
  selected_ = s_.ops.new_tensor(
      s_.n, indexer.select_params(s_.cache, s_.cache.spec().first_index_layer).most());
}

int LatentAttentionBlock::widest(
    const std::function<int(int layer, const LatentConfig&)>& size) const {
  int most = 0;
  for (int i = 0; i < s_.config.n_layers; ++i)
    most = std::max(most, size(i, s_.config.latent_of(i)));
  return most;
}

bool LatentAttentionBlock::has_indexer(int i) const {
  return s_.config.layers[static_cast<size_t>(i)].selecting_layer == i;
}

// queries_ = all heads' queries; k_ = the latent, and the rotated part before its rotation; of an
// indexer likewise.
void LatentAttentionBlock::project(int i, const NormedInput& h) {
  const LatentWeights& w = s_.weights.layers[i].latent;
  const LatentConfig& l = s_.config.latent_of(i);
  const IndexerConfig& indexer = s_.config.latent.indexer;
  const int heads = s_.config.n_heads_of(i);
  const Tensor k = k_.narrowed(s_.config.kv_dim_of(i)), latent = k.columns(0, l.kv_rank),
               turned = k.columns(l.kv_rank, l.rope_dim),
               query_latent = query_latent_.narrowed((l.gates_of_latent ? 2 : 1) * l.query_rank),
               queries = queries_.narrowed(heads * (l.plain_dim + l.rope_dim));
  const bool from_latent = l.query_rank > 0, indexes = has_indexer(i);
  const bool own = s_.config.layers[static_cast<size_t>(i)].kv_layer < 0;
  const int raw = l.gates_of_latent ? l.query_rank : 0;
  std::array<LinearTarget, 7> targets = {
      from_latent ? w.query.into(query_latent.columns(raw, l.query_rank)) : w.q.into(queries)};
  size_t n = 1;
  if (own) targets[n++] = w.latent.into(latent);
  if (own && l.rope_dim > 0) targets[n++] = w.rope.into(turned);
  const AttentionConfig& c = s_.config.attention;
  if (c.head_gates || (c.value_gates && !l.gates_of_latent))
    targets[n++] = w.gates.into(gates_.narrowed(c.head_gates ? heads : heads * l.value_dim));
  if (indexes) {
    targets[n++] = w.indexer.key.into(indexer.gated ? token_keys_ : index_k_);
    targets[n++] = w.indexer.weights.into(index_weights_);
    if (indexer.gated) targets[n++] = w.indexer.gate.into(index_gates_);
  }
  s_.ops.norm_linear(h, std::span(targets).first(n));
  const auto norm = [&](const NormWeights& of, float factor, Tensor x) {
    s_.ops.norm(x, {of.weight.get(), nullptr, l.norm_eps, false}, x);
    s_.multiply(x, factor);
  };
  if (own) norm(w.latent_norm, l.latent_factor, latent);
  if (own && l.norms_rotated) norm(w.rope_norm, 1.0f, turned);
  if (indexes && indexer.from_input) project_index_queries(i, h);
  if (!from_latent) return;
  if (l.gates_of_latent) return project_queries(i, queries);
  norm(w.query_norm, l.query_factor, query_latent);
  const LinearTarget both[] = {w.q.into(queries), w.indexer.query.into(index_q_)};
  s_.ops.linear(query_latent, std::span(both).first(indexes && !indexer.from_input ? 2 : 1));
}

// Of layers with LatentConfig::gates_of_latent: queries, gates and the indexer's queries.
void LatentAttentionBlock::project_queries(int i, Tensor queries) {
  const LatentWeights& w = s_.weights.layers[i].latent;
  const LatentConfig& l = s_.config.latent_of(i);
  const Tensor both = query_latent_.narrowed(2 * l.query_rank),
               normed = both.columns(0, l.query_rank);
  s_.ops.norm(both.columns(l.query_rank, l.query_rank),
              {w.query_norm.weight.get(), nullptr, l.norm_eps, false}, normed);
  const LinearTarget targets[] = {
      w.q.into(queries), w.gates.into(gates_.narrowed(s_.config.n_heads_of(i) * l.value_dim))};
  s_.ops.linear(both, targets);
  if (!has_indexer(i)) return;
  const LinearTarget index = w.indexer.query.into(index_q_);
  s_.ops.linear(normed, {&index, 1});
}

void LatentAttentionBlock::project_index_queries(int i, const NormedInput& h) {
  const IndexerWeights& w = s_.weights.layers[i].latent.indexer;
  s_.ops.norm(
      s_.ops.materialize(h),
      {w.in_norm.weight.get(), w.in_norm.bias.get(), s_.config.latent.indexer.norm_eps, true},
      index_in_);
  const LinearTarget target = w.query.into(index_q_);
  s_.ops.linear(index_in_, {&target, 1});
}

// Stores the indexer's keys and selects the tokens that this layer and those without an indexer
// behind it attend to.
void LatentAttentionBlock::select(int i) {
  const IndexerWeights& w = s_.weights.layers[i].latent.indexer;
  const IndexerConfig& indexer = s_.config.latent.indexer;
  const int keys = s_.cache.spec().first_index_layer + i;
  const Tensor of_tokens = indexer.gated ? token_keys_ : index_k_;
  s_.ops.norm(of_tokens, {w.key_norm.weight.get(), w.key_norm.bias.get(), indexer.norm_eps, true},
              of_tokens);
  if (indexer.gated)
    s_.ops.pool_keys(token_keys_, index_gates_,
                     {.places = w.places.get(), .pool = indexer.pool, .layer = i}, s_.cache,
                     index_k_);
  const RopeParams* const rope = s_.config.layers[i].rope < 0 ? nullptr : &s_.weights.index_rope;
  s_.ops.rope_and_store(index_q_, index_k_, Tensor(), rope, s_.cache, keys);
  if (indexer.from_input)
    s_.ops.scale_heads_by_position(index_q_, *w.scales.slopes, *w.scales.biases);
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

// Rotates queries, and keys into the cache unless they are those of an earlier layer; then scales
// queries.
void LatentAttentionBlock::store(int i) {
  const LayerConfig& kind = s_.config.layers[static_cast<size_t>(i)];
  const HeadScales& scales = s_.weights.layers[i].latent.scales;
  const Tensor q = q_.narrowed(s_.config.q_dim_of(i)), k = k_.narrowed(s_.config.kv_dim_of(i));
  const RopeParams* const rope =
      kind.rope < 0 ? nullptr : &s_.weights.ropes[static_cast<size_t>(kind.rope)];
  if (kind.kv_layer < 0) {
    s_.ops.rope_and_store(q, k, Tensor(), rope, s_.cache, i);
  } else if (rope != nullptr) {
    s_.ops.rotate(q, k.columns(0, 0), *rope, s_.config.head_dim_of(i));
  }
  if (kind.query_scale) s_.ops.scale_by_position(q, s_.config.attention.query_scale);
  if (scales.slopes != nullptr) s_.ops.scale_heads_by_position(q, *scales.slopes, *scales.biases);
}

void LatentAttentionBlock::forward(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const LayerWeights& layer = s_.weights.layers[i];
  const LayerConfig& kind = s_.config.layers[static_cast<size_t>(i)];
  const LatentWeights& w = layer.latent;
  const LatentConfig& l = s_.config.latent_of(i);
  const int heads = s_.config.n_heads_of(i);
  project(i, h);
  if (has_indexer(i)) select(i);
  // Heads as rows: a query is its plain part projected to the latent, followed by the rotated part,
  // in the layout of keys.
  const Tensor q = q_.narrowed(s_.config.q_dim_of(i)),
               attended = attended_.narrowed(heads * l.kv_rank),
               values = values_.narrowed(heads * l.value_dim);
  const Tensor plain = queries_.narrowed(heads * (l.plain_dim + l.rope_dim))
                           .reshaped(l.plain_dim + l.rope_dim),
               query = q.reshaped(s_.config.head_dim_of(i));
  if (l.rope_dim > 0)
    s_.ops.copy(plain.columns(l.plain_dim, l.rope_dim), query.columns(l.kv_rank, l.rope_dim));
  s_.ops.linear_by_head(plain.columns(0, l.plain_dim), w.absorb, query.columns(0, l.kv_rank));
  store(i);
  s_.ops.attend(q, s_.cache,
                {.layer = kind.kv_layer >= 0 ? kind.kv_layer : i,
                 .n_heads = heads,
                 .scale = s_.config.attention.scale * kind.score_factor,
                 .sinks = w.sinks.get(),
                 .selected = selection_of(i),
                 .selected_pool = s_.config.latent.indexer.pool},
                attended);
  s_.ops.linear_by_head(attended.reshaped(l.kv_rank), w.values, values.reshaped(l.value_dim));
  if (s_.config.attention.head_gates)
    s_.ops.gate_rows(values.reshaped(l.value_dim), gates_.narrowed(heads).reshaped(1),
                     s_.config.attention.gate);
  if (s_.config.attention.value_gates)
    s_.ops.activate_mul(gates_.narrowed(values.cols), values, s_.config.attention.gate, values);
  s_.add_product(values, w.o, x, layer.attn_post_norm, next);
}

}  // namespace penstock
