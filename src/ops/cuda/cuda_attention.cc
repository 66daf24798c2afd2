// Rotation, storing of K and V, and attention (kernels/attention.h).

#include "ops/cuda/cuda_cache.h"
#include "ops/cuda/cuda_ops.h"

namespace penstock::cuda {
namespace {

Rotation rotation_of(const RopeParams& rope) {
  return {device_data(rope.inv_freq),
          rope.inv_freq->size(),
          rope.scale,
          rope.interleaved,
          rope.first,
          device_data(rope.long_inv_freq),
          device_data(rope.axes),
          rope.offset};
}

}  // namespace

void CudaOps::rotate(Tensor q, Tensor k, const RopeParams& rope, int head_dim) {
  PENSTOCK_CHECK(q.cols % head_dim == 0 && k.cols % head_dim == 0 &&
                 (k.cols == 0 || q.rows == k.rows));
  launch(RotateHeads{rows_of(q), rows_of(k), head_dim, rotation_of(rope), batch()},
         Grid{q.rows, (q.cols + k.cols) / head_dim});
}

void CudaOps::rope_and_store(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                             int layer) {
  const KvLayerSpec& spec = cache.spec().layers[static_cast<size_t>(layer)];
  PENSTOCK_CHECK(k.cols == spec.n_kv_heads * spec.head_dim && q.cols % spec.head_dim == 0 &&
                 v.cols == (spec.values_in_keys == 0 ? spec.n_kv_heads * spec.value_dim() : 0));
  const Rotation rotation = rope != nullptr ? rotation_of(*rope) : Rotation{};
  const Rows queries = rope != nullptr ? rows_of(q) : Rows{};
  const KvLayerOnDevice& place = static_cast<const CudaKvCache&>(cache).layer(layer);
  const int query_warps = StoreKv::warps_of_queries(queries.cols / spec.head_dim);
  const StoreKv kernel{queries, rows_of(k), rows_of(v),  rotation,
                       place,   spec.group, query_warps, batch()};
  launch(kernel, Grid{k.rows, kernel.blocks(), kernel.shared_bytes()});
}

void CudaOps::store_and_attend(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                               const AttentionParams& params, Tensor out) {
  const NewTokens own{rows_of(k), rows_of(v), rope != nullptr ? rotation_of(*rope) : Rotation{}};
  if (!attention_.store_and_attend(q, own, cache, params, out))
    Ops::store_and_attend(q, k, v, rope, cache, params, out);
}

}  // namespace penstock::cuda
