#include "model/blocks/block_index.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {

void visit(TensorVisitor& v, BlockIndexWeights& w) {
  const auto& c = v.config();
  const int dim = c.attention.indexer.head_dim, i = v.layer();
  const WeightRole role = WeightRole::kLatent;
  const Cut own = rows_of(times(v.cuts().kv_heads(i), dim));
  v.linear(
      {&tensor::kBlockIndexQ, role, c.n_kv_heads_of(i) * dim, c.model_dim, own, Site::kAttention},
      w.q);
  v.linear({&tensor::kBlockIndexK, role, dim, c.model_dim, {}, Site::kAttention}, w.k);
  v.norm({&tensor::kBlockIndexQNorm, dim}, w.q_norm);
  v.norm({&tensor::kBlockIndexKNorm, dim}, w.k_norm);
}

BlockIndex::BlockIndex(Sublayer& sublayer) : s_(sublayer) {
  const int dim = s_.config.attention.indexer.head_dim;
  const SelectParams usual = params(0);
  q_ = s_.ops.new_tensor(s_.n, usual.n_heads * dim);
  k_ = s_.ops.new_tensor(s_.n, dim);
  selected_ = s_.ops.new_tensor(s_.n, usual.cols());
}

// All layers have equally many KV heads.
SelectParams BlockIndex::params(int i) const {
  SelectParams params =
      s_.config.attention.indexer.select_params(s_.cache, s_.cache.spec().first_index_layer + i);
  params.n_heads = s_.config.n_kv_heads_of(i);
  return params;
}

Tensor BlockIndex::select(int i, const NormedInput& h, const BlockIndexWeights& w) {
  const int dim = s_.config.attention.indexer.head_dim;
  const SelectParams of_layer = params(i);
  const LinearTarget targets[] = {w.q.into(q_), w.k.into(k_)};
  s_.ops.norm_linear(h, targets);
  s_.ops.norm(q_.reshaped(dim), norm_params(s_.config, w.q_norm), q_.reshaped(dim));
  s_.ops.norm(k_, norm_params(s_.config, w.k_norm), k_);
  s_.ops.rope_and_store(q_, k_, Tensor(), &s_.weights.index_rope, s_.cache, of_layer.layer);
  s_.ops.select(q_, Tensor(), s_.cache, of_layer, selected_);
  return selected_;
}

}  // namespace penstock
