// Rotation, storing and attention (kernels/attention.h).

#include <bit>

#include "ops/cuda/cuda_cache.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels/flash.h"

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

bool CudaOps::flashes(const KvLayerOnDevice& layer) const {
  const bool halves = layer.code == KvCode::kF16 || layer.code == KvCode::kBF16;
  return flash_ && !config_.batch_invariant && halves && layer.has_values() && layer.head_dim % 16 == 0 &&
         layer.head_dim <= 256;
}

template <int kDim, KvCode kCode>
void CudaOps::attend_flash(const AttentionOnDevice& attention) {
  const int rows = attention.q.rows, n_kv_heads = attention.layer.n_kv_heads;
  const auto launch_tiles = [&](const auto& tiles) {
    const int n = (rows + tiles.tokens - 1) / tiles.tokens;
    launch(tiles, Grid{n, n_kv_heads * tiles.head_tiles, tiles.shared_bytes()});
  };
  if (upload_.has_many()) {
    if constexpr (kDim == 128) {
      if (flash_warps_ == 8) {
        launch_tiles(FlashTiles<kDim, kCode, 8>(attention));
      } else {
        launch_tiles(FlashTiles<kDim, kCode, 4>(attention));
      }
    } else {
      launch_tiles(FlashTiles<kDim, kCode, 4>(attention));
    }
  }
  if (!upload_.has_few()) return;
  FlashPieces<kDim, kCode> pieces{attention, nullptr};
  const int heads = n_kv_heads * pieces.tiles(), n_pieces = upload_.piece_room();
  if (n_pieces == 0) return launch(pieces, Grid{rows, heads, pieces.shared_bytes()});
  const int n_heads = n_kv_heads * attention.n_queries;
  pieces.sums = scratch<float>(static_cast<size_t>(n_pieces) * static_cast<size_t>(n_heads) *
                               static_cast<size_t>(attention.layer.value_dim + 2));
  launch(pieces, Grid{n_pieces, heads, pieces.shared_bytes()});
  const FlashJoin join{attention, pieces.sums, n_pieces};
  launch(join, Grid{rows, n_heads, join.shared_bytes()});
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
  const auto block_size = static_cast<unsigned>(kernel.layer.block_size);
  kernel.block_shift = std::has_single_bit(block_size) ? std::countr_zero(block_size) : -1;
  if (flashes(kernel.layer)) {
    const int dim = kernel.layer.head_dim;
    const auto of_code = [&]<KvCode kCode>() {
      if (dim <= 64) {
        attend_flash<64, kCode>(kernel);
      } else if (dim <= 128) {
        attend_flash<128, kCode>(kernel);
      } else {
        attend_flash<256, kCode>(kernel);
      }
    };
    return kernel.layer.code == KvCode::kF16 ? of_code.operator()<KvCode::kF16>()
                                             : of_code.operator()<KvCode::kBF16>();
  }
  const Attend whole{kernel};
  const int heads = spec.n_kv_heads * whole.tiles(), n_pieces = upload_.piece_room();
  if (n_pieces == 0) return launch(whole, Grid{q.rows, heads, whole.shared_bytes()});
  const size_t of_piece = static_cast<size_t>(params.n_heads) * static_cast<size_t>(spec.value_dim() + 2);
  auto* const sums = scratch<float>(static_cast<size_t>(n_pieces) * of_piece);
  launch(AttendPieces{kernel, sums}, Grid{n_pieces, heads, whole.shared_bytes()});
  launch(JoinPieces{kernel, sums}, Grid{q.rows, heads});
}

}  // namespace penstock::cuda
