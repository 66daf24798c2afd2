#include "model/blocks/compressed_attention.h"

#include <array>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {

namespace {

struct CompressorNames {
  const TensorName *kv, *gate, *places, *norm;
};
constexpr CompressorNames kEntryNames{&tensor::kEntryKv, &tensor::kEntryGate, &tensor::kEntryPlaces,
                                      &tensor::kEntryNorm};
constexpr CompressorNames kIndexNames{&tensor::kIndexEntryKv, &tensor::kIndexEntryGate,
                                      &tensor::kIndexEntryPlaces, &tensor::kIndexEntryNorm};

const LayerConfig& kind_of(const ModelConfig& config, int layer) {
  return config.layers[static_cast<size_t>(layer)];
}

bool selects(const ModelConfig& config, int layer) {
  return kind_of(config, layer).selecting_layer == layer;
}

// Every rank has all of it.
void visit_compressor(TensorVisitor& v, const CompressorNames& names, const PoolParams& pool,
                      int head_dim, CompressorWeights& w) {
  const int width = pool.width(head_dim), dim = v.config().model_dim, places = pool.pool * width;
  for (const auto& [name, of] : {std::pair(names.kv, &w.kv), std::pair(names.gate, &w.gate)})
    v.linear({name, WeightRole::kRouter, width, dim, {}, Site::kAttention}, *of);
  v.vector({.name = names.places,
            .size = places,
            .part = {0, places},
            .shape = VectorSpec::Shape::kMatrix,
            .per_row = width,
            .is_bias = true},
           w.places);
  v.norm({names.norm, head_dim}, w.norm);
}

PoolParams pool_of(const ModelConfig& config, int layer) {
  PoolParams pool;
  pool.pool = kind_of(config, layer).entry_ratio;
  pool.overlaps = selects(config, layer);
  pool.layer = layer;
  return pool;
}

}  // namespace

PoolParams entry_pool(const ModelConfig& config, int layer) { return pool_of(config, layer); }

PoolParams index_entry_pool(const ModelConfig& config, int layer) {
  PoolParams pool = pool_of(config, layer);
  pool.state_offset = pool.state_values(config.head_dim);
  return pool;
}

int64_t entry_state_values(const ModelConfig& config, int layer) {
  if (kind_of(config, layer).entry_ratio == 0) return 0;
  const PoolParams pool = pool_of(config, layer);
  const int64_t of_index =
      selects(config, layer) ? pool.state_values(config.compressed.indexer.head_dim) : 0;
  return pool.state_values(config.head_dim) + of_index;
}

void visit(TensorVisitor& v, CompressedWeights& w) {
  const ModelConfig& c = v.config();
  const CompressedConfig& own = c.compressed;
  const int i = v.layer(), dim = c.model_dim, head = c.head_dim, n = c.n_heads_of(i);
  const Shard::Range heads = v.cuts().heads(i), groups = v.cuts().output_groups();
  const WeightRole role = WeightRole::kLatent;
  v.linear({&tensor::kLowQuery, role, own.query_rank, dim, {}, Site::kAttention}, w.query);
  v.norm({&tensor::kLowQueryNorm, own.query_rank}, w.query_norm);
  v.linear({.name = &tensor::kLowQueryUp,
            .role = role,
            .rows = n * head,
            .cols = own.query_rank,
            .cut = rows_of(times(heads, head))},
           w.q);
  v.linear({&tensor::kSharedKv, role, head, dim, {}, Site::kAttention}, w.kv);
  v.norm({&tensor::kSharedKvNorm, head}, w.kv_norm);
  v.vector({.name = &tensor::kAttnSink, .size = n, .part = heads, .is_bias = true}, w.sinks);
  v.diagonal({.name = &tensor::kOutGroups,
              .role = role,
              .rows = own.n_groups * own.out_rank,
              .cols = n / own.n_groups * head,
              .cut = rows_of(times(groups, own.out_rank))},
             own.n_groups, w.groups);
  v.linear({.name = &tensor::kOutJoined,
            .role = WeightRole::kO,
            .rows = dim,
            .cols = own.n_groups * own.out_rank,
            .cut = columns_of(times(groups, own.out_rank)),
            .part = Part::kO},
           w.o);
  if (kind_of(c, i).entry_ratio == 0) return;
  visit_compressor(v, kEntryNames, pool_of(c, i), head, w.entries);
  if (!selects(c, i)) return;
  const IndexerConfig& indexer = own.indexer;
  v.linear({&tensor::kEntryIndexQuery, role, indexer.n_heads * indexer.head_dim, own.query_rank},
           w.index_query);
  v.linear({&tensor::kEntryIndexWeights,
            WeightRole::kRouter,
            indexer.n_heads,
            dim,
            {},
            Site::kAttention},
           w.index_weights);
  visit_compressor(v, kIndexNames, pool_of(c, i), indexer.head_dim, w.index);
}

CompressedAttentionBlock::CompressedAttentionBlock(Sublayer& sublayer) : s_(sublayer) {
  const ModelConfig& c = s_.config;
  const auto make = [&](int cols) { return s_.ops.new_tensor(s_.n, cols); };
  q_ = make(c.q_dim()), attended_ = make(c.q_dim()), kv_ = make(c.head_dim);
  query_latent_ = make(c.compressed.query_rank);
  grouped_ = make(c.compressed.n_groups * c.compressed.out_rank);
  if (s_.cache.spec().first_entry_layer == 0) return;
  entry_parts_ = make(4 * c.head_dim), entries_ = make(c.head_dim);
  const IndexerConfig& indexer = c.compressed.indexer;
  if (indexer.top_k == 0) return;
  index_q_ = make(indexer.n_heads * indexer.head_dim), index_weights_ = make(indexer.n_heads);
  index_parts_ = make(4 * indexer.head_dim), index_entries_ = make(indexer.head_dim);
  selected_ = make(indexer.select_params(s_.cache, s_.cache.spec().first_index_layer).cols());
}

// The rotation of the last dimensions of heads of this size.
RopeParams CompressedAttentionBlock::rope_of(int index, int head_dim) const {
  RopeParams rope = s_.weights.ropes[static_cast<size_t>(index)];
  rope.first = head_dim - s_.config.compressed.rope_dim;
  return rope;
}

void CompressedAttentionBlock::project(int i, const NormedInput& h) {
  const CompressedWeights& w = s_.weights.layers[static_cast<size_t>(i)].compressed;
  const bool has_entries = kind_of(s_.config, i).entry_ratio > 0, indexes = selects(s_.config, i);
  std::array<LinearTarget, 7> targets = {w.query.into(query_latent_), w.kv.into(kv_)};
  size_t n = 2;
  const auto add = [&](const CompressorWeights& of, const PoolParams& pool, int dim, Tensor parts) {
    const int width = pool.width(dim);
    targets[n++] = of.kv.into(parts.columns(0, width));
    targets[n++] = of.gate.into(parts.columns(width, width));
  };
  if (has_entries) add(w.entries, pool_of(s_.config, i), s_.config.head_dim, entry_parts_);
  if (indexes) {
    add(w.index, pool_of(s_.config, i), s_.config.compressed.indexer.head_dim, index_parts_);
    targets[n++] = w.index_weights.into(index_weights_);
  }
  s_.ops.norm_linear(h, std::span(targets).first(n));
  s_.ops.norm(query_latent_, norm_params(s_.config, w.query_norm), query_latent_);
  s_.ops.norm(kv_, norm_params(s_.config, w.kv_norm), kv_);
  const Tensor q = q_.narrowed(s_.config.q_dim_of(i));
  const LinearTarget both[] = {w.q.into(q), w.index_query.into(index_q_)};
  s_.ops.linear(query_latent_, std::span(both).first(indexes ? 2 : 1));
  const Tensor heads = q.reshaped(s_.config.head_dim);
  s_.ops.norm(heads, {nullptr, nullptr, s_.config.norm.eps}, heads);
}

// Stores the entries that end with this step's tokens, rotated by the positions of their first tokens.
void CompressedAttentionBlock::store_entries(const CompressorWeights& w, const PoolParams& pool,
                                             Tensor parts, Tensor entries, int layer) {
  const int width = pool.width(entries.cols);
  PoolParams params = pool;
  params.places = w.places.get();
  s_.ops.pool_keys(parts.columns(0, width), parts.columns(width, width), params, s_.cache, entries);
  s_.ops.norm(entries, norm_params(s_.config, w.norm), entries);
  RopeParams rope = rope_of(0, entries.cols);
  rope.offset = 1 - pool.pool;
  const Tensor none = entries.columns(0, 0);
  s_.ops.rotate(none, entries, rope, entries.cols);
  s_.ops.rope_and_store(none, entries, Tensor(), nullptr, s_.cache, layer);
}

// Stores the indexer's keys and selects entries.
Tensor CompressedAttentionBlock::select(int i) {
  const CompressedWeights& w = s_.weights.layers[static_cast<size_t>(i)].compressed;
  const IndexerConfig& indexer = s_.config.compressed.indexer;
  const int keys = s_.cache.spec().first_index_layer + i;
  store_entries(w.index, index_entry_pool(s_.config, i), index_parts_, index_entries_, keys);
  s_.ops.rotate(index_q_, index_entries_.columns(0, 0), rope_of(0, indexer.head_dim),
                indexer.head_dim);
  s_.ops.select(index_q_, index_weights_, s_.cache, indexer.select_params(s_.cache, keys),
                selected_);
  return selected_;
}

void CompressedAttentionBlock::forward(int i, const NormedInput& h, Tensor x,
                                       const NormedInput* next) {
  const LayerWeights& layer = s_.weights.layers[static_cast<size_t>(i)];
  const CompressedWeights& w = layer.compressed;
  const LayerConfig& kind = kind_of(s_.config, i);
  const CompressedConfig& c = s_.config.compressed;
  const int dim = s_.config.head_dim;
  project(i, h);
  EntryParams entries;
  if (kind.entry_ratio > 0) {
    entries.layer = s_.cache.spec().first_entry_layer + i;
    entries.ratio = kind.entry_ratio;
    store_entries(w.entries, entry_pool(s_.config, i), entry_parts_, entries_, entries.layer);
    if (selects(s_.config, i)) entries.selected = select(i);
  }
  const Tensor q = q_.narrowed(s_.config.q_dim_of(i)), attended = attended_.narrowed(q.cols),
               grouped = grouped_.narrowed(c.n_groups * c.out_rank);
  s_.ops.rotate(q, kv_, rope_of(kind.rope, dim), dim);
  s_.ops.store_and_attend(q, kv_, Tensor(), nullptr, s_.cache,
                          {.layer = i,
                           .n_heads = s_.config.n_heads_of(i),
                           .scale = s_.config.attention.scale,
                           .sinks = w.sinks.get(),
                           .entries = entries},
                          attended);
  s_.ops.rotate(attended, kv_.columns(0, 0), rope_of(kind.rope + 1, dim), dim);
  s_.ops.linear_by_head(attended.reshaped(q.cols / c.n_groups), w.groups,
                        grouped.reshaped(c.out_rank));
  s_.add_product(grouped, w.o, x, layer.attn_post_norm, next);
}

}  // namespace penstock
