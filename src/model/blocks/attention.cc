#include "model/blocks/attention.h"

#include "model/blocks/cuts.h"
#include "model/blocks/difference.h"
#include "model/blocks/weights.h"

namespace penstock {

std::vector<int> rows_by_group(const ModelConfig& config) {
  const int group = config.n_heads / config.n_kv_heads, dim = config.head_dim;
  std::vector<int> rows;
  if (config.attention.qkv_shards > 0) {
    const int all = config.n_heads * dim, each = all / config.attention.qkv_shards;
    for (const int place : {0, 2, 1}) {
      for (int r = 0; r < all; ++r) rows.push_back((r / each * 3 + place) * each + r % each);
    }
    return rows;
  }
  const auto add_head = [&](int kv_head, int place) {
    for (int d = 0; d < dim; ++d) rows.push_back((kv_head * (group + 2) + place) * dim + d);
  };
  for (int h = 0; h < config.n_heads; ++h) add_head(h / group, h % group);
  for (int h = 0; h < config.n_kv_heads; ++h) add_head(h, group);
  for (int h = 0; h < config.n_kv_heads; ++h) add_head(h, group + 1);
  return rows;
}

namespace {

// Returns the layer of the cache that layer i attends to.
int cache_layer(const LayerConfig& kind, int i) {
  if (kind.kv_layer >= 0) return kind.kv_layer;
  return kind.cache_layer >= 0 ? kind.cache_layer : i;
}

void visit_qk_norms(TensorVisitor& v, AttentionWeights& w) {
  const auto& c = v.config();
  const int i = v.layer();
  const bool stores = c.layers[static_cast<size_t>(i)].kv_layer < 0;
  switch (c.attention.qk_norm) {
    case QkNorm::kNone:
    case QkNorm::kPlain:
    case QkNorm::kBare: return;
    case QkNorm::kHead:
      v.norm({&tensor::kQNorm, c.head_dim_of(i)}, w.q_norm);
      if (stores) v.norm({&tensor::kKNorm, c.head_dim_of(i)}, w.k_norm);
      return;
    case QkNorm::kHeads:
      v.head_norm({&tensor::kQNorm, c.n_heads_of(i), v.cuts().heads(i)}, w.q_norm);
      return v.head_norm({&tensor::kKNorm, c.n_kv_heads_of(i), v.cuts().kv_heads(i)}, w.k_norm);
    case QkNorm::kRow:
      v.norm({&tensor::kQNorm, c.q_dim_of(i)}, w.q_norm);
      return v.norm({&tensor::kKNorm, c.kv_dim_of(i)}, w.k_norm);
  }
}

}  // namespace

std::string_view difference(const AttentionConfig& a, const AttentionConfig& b) {
  const PositionScale &x = a.query_scale, &y = b.query_scale;
  return first_difference(
      {{"norms", a.qk_norm == b.qk_norm && a.rope_before_norm == b.rope_before_norm &&
                     a.value_norm == b.value_norm && a.attended_norm == b.attended_norm},
       {"sizes of values", a.value_dim == b.value_dim},
       {"clamped values", nearly(a.clip, b.clip)},
       {"gates of heads", a.gated == b.gated && a.head_gates == b.head_gates &&
                              a.value_gates == b.value_gates && a.gate == b.gate},
       {"attention scale", nearly(a.scale, b.scale)},
       {"growing queries", nearly(x.beta, y.beta) && (x.beta == 0 || nearly(x.period, y.period)) &&
                               a.learned_query_scale == b.learned_query_scale},
       {"soft cap of scores", nearly(a.softcap, b.softcap)},
       {"biases of scores", nearly(a.alibi_max_bias, b.alibi_max_bias) &&
                                a.alibi_scaled == b.alibi_scaled && a.sinks == b.sinks &&
                                a.relative == b.relative},
       {"indexers", a.indexer == b.indexer},
       {"differences of attentions", a.differential == b.differential},
       {"multipliers", a.in_factor == b.in_factor && a.out_factor == b.out_factor &&
                           a.key_factor == b.key_factor}});
}

void visit(TensorVisitor& v, AttentionWeights& w) {
  const auto& c = v.config();
  const int i = v.layer(), dim = c.model_dim, head = c.head_dim_of(i), q = c.q_dim_of(i),
            kv = c.kv_dim_of(i), value = c.value_dim_of(i), attended = c.attended_dim_of(i);
  const auto& kind = c.layers[static_cast<size_t>(i)];
  const int per_head = c.attention.gated ? 2 : 1;
  const Cut own = rows_of(times(v.cuts().heads(i), per_head * head)),
            own_kv = rows_of(times(v.cuts().kv_heads(i), head)),
            own_values = rows_of(times(v.cuts().kv_heads(i), value));
  LinearSpec queries{&tensor::kQ, WeightRole::kQ,   per_head * q, dim,
                     own,         Site::kAttention, Part::kQ},
      keys{&tensor::kK, WeightRole::kK, kv, dim, own_kv, Site::kAttention, Part::kK},
      values{&tensor::kV, WeightRole::kV,   c.v_dim_of(i), dim,
             own_values,  Site::kAttention, Part::kV};
  GroupedHeads turns;
  if (c.attention.heads_in_turn) turns = {0, head, c.n_kv_heads_of(i), c.n_heads_of(i)};
  queries.row_heads = turns;
  const int n_gates = c.n_gates_of(i);
  const WeightRole gate = c.attention.head_gates ? WeightRole::kRouter : WeightRole::kLatent;
  const LinearSpec gates{&tensor::kGates,
                         gate,
                         n_gates,
                         dim,
                         rows_of(times(v.cuts().heads(i), n_gates / c.n_heads_of(i))),
                         Site::kAttention};
  for (LinearSpec* spec : {&queries, &keys, &values}) spec->in_factor = c.attention.in_factor;
  keys.out_factors = {{kv, c.attention.key_factor}};
  if (kind.kv_layer >= 0) {
    for (const TensorName* name : {&tensor::kK, &tensor::kV, &tensor::kKNorm}) v.unused(name);
    v.linear(queries, w.q);
  } else if (c.attention.gated || kind.keys_as_values) {
    v.linear(queries, w.q);
    v.linear(keys, w.k);
    if (!kind.keys_as_values) v.linear(values, w.v);
  } else if (c.attention.joins_gates) {
    JoinedSpec all{.name = &tensor::kGatedQkv, .role = WeightRole::kQkv, .inner = &tensor::kQkv};
    v.joined(all, {{gates, &w.gates}, {queries, &w.q}, {keys, &w.k}, {values, &w.v}});
  } else {
    JoinedSpec all{&tensor::kQkv, WeightRole::kQkv};
    if (c.attention.qkv_by_group) all.order = rows_by_group(c);
    all.part = Part::kQkv;
    v.joined(all, {{queries, &w.q}, {keys, &w.k}, {values, &w.v}});
  }
  visit_qk_norms(v, w);
  if (n_gates > 0 && !c.attention.joins_gates) v.linear(gates, w.gates);
  if (c.attention.sinks && kind.has_sinks)
    v.vector({.name = &tensor::kSinks,
              .size = c.n_heads_of(i),
              .part = v.cuts().heads(i),
              .is_bias = true},
             w.sinks);
  if (c.norm.sub_norms) v.norm({&tensor::kAttnSubNorm, attended}, w.sub_norm);
  if (kind.selecting_layer == i) {
    if (c.attention.indexer.block > 0) visit(v, w.block_index);
    if (c.attention.indexer.block == 0) visit(v, w.index);
  }
  v.linear({&tensor::kO,
            WeightRole::kO,
            dim,
            attended,
            columns_of(times(v.cuts().heads(i), value)),
            Site::kAttentionOut,
            Part::kO,
            {},
            turns,
            {},
            1.0f,
            {{dim, c.attention.out_factor}}},
           w.o);
}

AttentionBlock::AttentionBlock(Sublayer& sublayer) : s_(sublayer) {
  const ModelConfig& config = s_.config;
  q_ = s_.ops.new_tensor(s_.n, config.q_dim());
  k_ = s_.ops.new_tensor(s_.n, config.kv_dim());
  v_ = s_.ops.new_tensor(s_.n, config.v_dim());
  attended_ = s_.ops.new_tensor(s_.n, config.attended_dim());
  if (config.attention.gated) gated_q_ = s_.ops.new_tensor(s_.n, 2 * config.q_dim());
  if (config.attention.head_gates) gates_ = s_.ops.new_tensor(s_.n, config.most_heads());
  if (config.attention.value_gates) gates_ = s_.ops.new_tensor(s_.n, config.attended_dim());
  const int n_terms = config.most_heads() * config.attention.relative.n_columns;
  if (config.attention.relative.by_query) query_terms_ = s_.ops.new_tensor(s_.n, n_terms);
  if (config.attention.relative.by_key) key_terms_ = s_.ops.new_tensor(s_.n, n_terms);
  const IndexerConfig& indexer = config.attention.indexer;
  if (indexer.top_k > 0 && indexer.block > 0) block_index_.emplace(s_);
  if (indexer.top_k > 0 && indexer.block == 0) index_.emplace(s_);
}

void AttentionBlock::forward(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const LayerConfig& kind = s_.config.layers[static_cast<size_t>(i)];
  const LayerWeights& layer = s_.weights.layers[i];
  const Heads heads = project_heads(i, h);
  const Tensor selected = select(i, h);
  const RopeParams* const rope = prepare_heads(i, heads);
  const Tensor attended = attended_.narrowed(s_.config.attended_dim_of(i));
  const AttentionParams params{
      cache_layer(kind, i),
      s_.config.n_heads_of(i),
      s_.config.attention.scale * kind.score_factor * s_.config.attention.key_factor,
      s_.config.attention.softcap,
      layer.attention.sinks.get(),
      s_.weights.alibi_slopes.get(),
      selected,
      s_.config.attention.indexer.pool,
      s_.config.attention.indexer.block,
      relative_terms(i, heads)};
  if (kind.query_scale) {
    store(i, heads, rope);
    s_.ops.scale_by_position(heads.q, s_.config.attention.query_scale);
    s_.ops.attend(heads.q, s_.cache, params, attended);
  } else {
    s_.ops.store_and_attend(heads.q, heads.k, heads.v, rope, s_.cache, params, attended);
  }
  if (s_.config.attention.attended_norm) {
    const Tensor by_head = attended.reshaped(s_.config.value_dim_of(i));
    s_.ops.norm(by_head, {nullptr, nullptr, s_.config.norm.eps}, by_head);
  }
  if (s_.config.attention.gated) {
    const Tensor by_head = attended.reshaped(s_.config.head_dim);
    s_.ops.activate_mul(half_heads(gated_q_, 1), by_head, Activation::kSigmoid, by_head);
  }
  if (s_.config.attention.head_gates)
    s_.ops.gate_rows(attended.reshaped(s_.config.value_dim_of(i)),
                     gates_.narrowed(s_.config.n_gates_of(i)).reshaped(1),
                     s_.config.attention.gate);
  if (s_.config.attention.value_gates)
    s_.ops.activate_mul(gates_.narrowed(attended.cols), attended, s_.config.attention.gate,
                        attended);
  if (layer.attention.sub_norm)
    s_.ops.norm(attended, norm_params(s_.config, layer.attention.sub_norm), attended);
  if (s_.config.rounding.activations) s_.ops.round_int8(attended);
  s_.add_product(attended, layer.attention.o, x, layer.attn_post_norm, next,
                 s_.config.attention.out_factor);
}

RelativeTerms AttentionBlock::relative_terms(int i, const Heads& heads) const {
  const RelativeConfig& relative = s_.config.attention.relative;
  if (relative.columns.empty()) return {};
  const AttentionWeights& w = s_.weights.layers[i].attention;
  const int dim = s_.config.head_dim_of(i), n = relative.n_columns;
  if (relative.by_query)
    s_.ops.linear_by_head(heads.q.reshaped(dim), w.query_terms, query_terms_.reshaped(n));
  if (relative.by_key)
    s_.ops.linear_by_head(heads.k.reshaped(dim), w.key_terms, key_terms_.reshaped(n));
  return {s_.weights.relative_columns.get(), n, s_.weights.relative_table.get(), query_terms_,
          key_terms_};
}

// Nothing selected: all tokens.
Tensor AttentionBlock::select(int i, const NormedInput& h) {
  const AttentionWeights& w = s_.weights.layers[i].attention;
  if (s_.config.layers[static_cast<size_t>(i)].selecting_layer != i) return {};
  return block_index_ ? block_index_->select(i, h, w.block_index) : index_->select(i, h, w.index);
}

// Returns one half of each head as a row: the query (0) or the gate (1).
Tensor AttentionBlock::half_heads(Tensor x, int half) const {
  const int dim = s_.config.head_dim;
  return x.reshaped(2 * dim).columns(half * dim, dim);
}

AttentionBlock::Heads AttentionBlock::project_heads(int i, const NormedInput& h) {
  const LayerConfig& kind = s_.config.layers[static_cast<size_t>(i)];
  const LayerWeights& layer = s_.weights.layers[i];
  const Tensor q = q_.narrowed(s_.config.q_dim_of(i));
  if (kind.kv_layer >= 0) {
    const LinearTarget target = layer.attention.q.into(q);
    s_.ops.norm_linear(s_.rounded(h), {&target, 1});
    return {q, {}, {}};
  }
  const int kv_dim = s_.config.kv_dim_of(i);
  const Heads heads{q, k_.narrowed(kv_dim), v_.narrowed(s_.config.v_dim_of(i))};
  const bool gated = s_.config.attention.gated;
  LinearTarget targets[4] = {layer.attention.q.into(gated ? gated_q_ : heads.q),
                             layer.attention.k.into(heads.k)};
  size_t n_targets = 2;
  if (!kind.keys_as_values) targets[n_targets++] = layer.attention.v.into(heads.v);
  if (const int n_gates = s_.config.n_gates_of(i); n_gates > 0)
    targets[n_targets++] = layer.attention.gates.into(gates_.narrowed(n_gates));
  s_.ops.norm_linear(s_.rounded(h), std::span(targets).first(n_targets));
  if (gated) s_.ops.copy(half_heads(gated_q_, 0), heads.q.reshaped(s_.config.head_dim));
  if (kind.keys_as_values) s_.ops.copy(heads.k, heads.v);
  return heads;
}

// Rotates q, and k into the cache with v.
void AttentionBlock::store(int i, const Heads& heads, const RopeParams* rope) {
  const LayerConfig& kind = s_.config.layers[static_cast<size_t>(i)];
  if (kind.kv_layer < 0)
    return s_.ops.rope_and_store(heads.q, heads.k, heads.v, rope, s_.cache, cache_layer(kind, i));
  if (rope != nullptr) s_.ops.rotate(heads.q, heads.k, *rope, s_.config.head_dim_of(i));
}

// Norms the heads. Returns the rope that store() still has to apply, or null.
const RopeParams* AttentionBlock::prepare_heads(int i, const Heads& heads) {
  const int index = s_.config.layers[static_cast<size_t>(i)].rope;
  const RopeParams* rope = index < 0 ? nullptr : &s_.weights.ropes[static_cast<size_t>(index)];
  const bool rotate_first = rope != nullptr && s_.config.attention.rope_before_norm &&
                            s_.config.attention.qk_norm != QkNorm::kNone;
  if (rotate_first) s_.ops.rotate(heads.q, heads.k, *rope, s_.config.head_dim_of(i));
  norm_heads(i, heads);
  if (const int first = s_.config.layers[static_cast<size_t>(i)].first_rope; first >= 0)
    s_.ops.rotate(heads.q, heads.k, s_.weights.ropes[static_cast<size_t>(first)],
                  s_.config.head_dim_of(i));
  return rotate_first ? nullptr : rope;
}

void AttentionBlock::norm_heads(int i, const Heads& heads) {
  const LayerWeights& layer = s_.weights.layers[i];
  const int head_dim = s_.config.head_dim_of(i);
  const auto norm = [&](Tensor x, const NormParams& params, bool row) {
    const Tensor rows = row ? x : x.reshaped(head_dim);
    if (x.cols > 0) s_.ops.norm(rows, params, rows);
  };
  if (s_.config.attention.value_norm) norm(heads.v, {nullptr, nullptr, s_.config.norm.eps}, false);
  const bool plain_there = s_.config.attention.qk_norm == QkNorm::kBare ||
                           s_.config.layers[static_cast<size_t>(i)].rope >= 0;
  if (s_.config.attention.qk_norm != QkNorm::kNone &&
      (s_.config.attention.qk_norm != QkNorm::kPlain || plain_there)) {
    const bool row = s_.config.attention.qk_norm == QkNorm::kRow;
    norm(heads.q, norm_params(s_.config, layer.attention.q_norm), row);
    norm(heads.k, norm_params(s_.config, layer.attention.k_norm), row);
  }
  if (s_.config.attention.clip == 0.0f) return;
  ActivationFunction clamp(Activation::kClamp);
  clamp.parameters[0] = -s_.config.attention.clip;
  clamp.parameters[1] = s_.config.attention.clip;
  for (const Tensor& x : {heads.q, heads.k, heads.v}) s_.ops.activate(x, clamp);
}

}  // namespace penstock
