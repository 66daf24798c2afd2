// Rotation, storing and attention (kernels/attention.h).

#include "ops/cuda/cuda_cache.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels/attention.h"

namespace penstock::cuda {
namespace {

constexpr int kReduceBytes = 64;  // scratch of block_max

Rotation rotation_of(const RopeParams& rope) {
  return {device_data(rope.inv_freq), rope.inv_freq->size(), rope.scale, rope.interleaved, rope.first};
}

}  // namespace

void CudaOps::rotate(Tensor q, Tensor k, const RopeParams& rope, int head_dim) {
  PENSTOCK_CHECK(q.cols % head_dim == 0 && k.cols % head_dim == 0 && (k.cols == 0 || q.rows == k.rows));
  launch(RotateHeads{rows_of(q), rows_of(k), head_dim, rotation_of(rope), batch()},
         Grid{q.rows, (q.cols + k.cols) / head_dim});
}

void CudaOps::rope_and_store(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                             int layer) {
  const KvLayerSpec& spec = cache.spec().layers[static_cast<size_t>(layer)];
  const bool has_values = spec.values_in_keys == 0;
  PENSTOCK_CHECK(k.cols == spec.n_kv_heads * spec.head_dim && v.cols == (has_values ? k.cols : 0) &&
                 q.cols % spec.head_dim == 0);
  const Rotation rotation = rope != nullptr ? rotation_of(*rope) : Rotation{};
  const Rows queries = rope != nullptr ? rows_of(q) : Rows{};
  const KvLayerOnDevice& place = static_cast<const CudaKvCache&>(cache).layer(layer);
  launch(StoreKv{queries, rows_of(k), rows_of(v), rotation, place, spec.group, batch()},
         Grid{k.rows, queries.cols / spec.head_dim + spec.n_kv_heads, kReduceBytes});
}

void CudaOps::attend(Tensor q, const KvCache& cache, const AttentionParams& params, Tensor out) {
  const KvLayerSpec& spec = cache.spec().layers[static_cast<size_t>(params.layer)];
  PENSTOCK_CHECK(q.cols == params.n_heads * spec.head_dim && out.cols == params.n_heads * spec.value_dim());
  PENSTOCK_CHECK(params.n_heads % spec.n_kv_heads == 0 && q.rows == out.rows);
  AttentionOnDevice kernel{};
  kernel.q = rows_of(q), kernel.out = rows_of(out);
  kernel.layer = static_cast<const CudaKvCache&>(cache).layer(params.layer);
  kernel.group = spec.group;
  kernel.n_queries = params.n_heads / spec.n_kv_heads;
  kernel.window = spec.window, kernel.chunked = spec.chunked, kernel.both_ways = spec.both_ways;
  kernel.scale = params.scale, kernel.softcap = params.softcap;
  kernel.sinks = device_data(params.sinks), kernel.slopes = device_data(params.slopes);
  kernel.batch = batch();
  const Attend whole{kernel};
  const int heads = spec.n_kv_heads * whole.tiles(), n_pieces = upload_.piece_room();
  if (n_pieces == 0) return launch(whole, Grid{q.rows, heads, whole.shared_bytes()});
  const size_t of_piece = static_cast<size_t>(params.n_heads) * static_cast<size_t>(spec.value_dim() + 2);
  auto* const sums = scratch<float>(static_cast<size_t>(n_pieces) * of_piece);
  launch(AttendPieces{kernel, sums}, Grid{n_pieces, heads, whole.shared_bytes()});
  launch(JoinPieces{kernel, sums}, Grid{q.rows, heads});
}

}  // namespace penstock::cuda
