#include "model/blocks/pooled_index.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {

void visit(TensorVisitor& v, PooledIndexWeights& w) {
  const auto& c = v.config();
  const IndexerConfig& indexer = c.attention.indexer;
  const int dim = c.model_dim, heads = indexer.n_heads * indexer.head_dim;
  const WeightRole role = WeightRole::kLatent;
  v.joined({&tensor::kPooledIndexQk, role},
           {{{&tensor::kPooledIndexQ, role, heads, dim, {}, Site::kAttention}, &w.q},
            {{&tensor::kPooledIndexK, role, indexer.head_dim, dim, {}, Site::kAttention}, &w.k}});
  v.norm({&tensor::kPooledIndexQNorm, indexer.head_dim}, w.q_norm);
  v.norm({&tensor::kPooledIndexKNorm, indexer.head_dim}, w.k_norm);
  v.ones(indexer.pool * indexer.head_dim, w.ones);
}

PooledIndex::PooledIndex(Sublayer& sublayer) : s_(sublayer) {
  const IndexerConfig& indexer = s_.config.attention.indexer;
  q_ = s_.ops.new_tensor(s_.n, indexer.n_heads * indexer.head_dim);
  raw_ = s_.ops.new_tensor(s_.n, indexer.head_dim);
  k_ = s_.ops.new_tensor(s_.n, indexer.head_dim);
  selected_ = s_.ops.new_tensor(
      s_.n, indexer.select_params(s_.cache, s_.cache.spec().first_index_layer).most());
}

Tensor PooledIndex::select(int i, const NormedInput& h, const PooledIndexWeights& w) {
  const IndexerConfig& indexer = s_.config.attention.indexer;
  const int dim = indexer.head_dim, keys = s_.cache.spec().first_index_layer + i;
  const LinearTarget targets[] = {w.q.into(q_), w.k.into(raw_)};
  s_.ops.norm_linear(h, targets);
  s_.ops.norm(q_.reshaped(dim), norm_params(s_.config, w.q_norm), q_.reshaped(dim));
  s_.ops.causal_conv(raw_, {w.ones.get(), nullptr, indexer.pool, i}, s_.cache, k_);
  s_.multiply(k_, 1.0f / static_cast<float>(indexer.pool));
  s_.ops.norm(k_, norm_params(s_.config, w.k_norm), k_);
  RopeParams of_block = s_.weights.index_rope;
  of_block.offset = 1 - indexer.pool;
  s_.ops.rotate(q_, k_.columns(0, 0), s_.weights.index_rope, dim);
  s_.ops.rotate(k_, q_.columns(0, 0), of_block, dim);
  s_.ops.rope_and_store(q_, k_, Tensor(), nullptr, s_.cache, keys);
  s_.ops.select(q_, Tensor(), s_.cache, indexer.select_params(s_.cache, keys), selected_);
  return selected_;
}

}  // namespace penstock
