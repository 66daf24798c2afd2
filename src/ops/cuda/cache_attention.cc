#include "ops/cuda/cache_attention.h"

#include <bit>

#include "base/check.h"
#include "ops/cuda/cuda_cache.h"
#include "ops/cuda/cuda_vector.h"
#include "ops/cuda/kernels/flash.h"
#include "ops/cuda/kernels/flash_wide.h"
#include "ops/cuda/kernels/narrow_attention.h"
#include "ops/cuda/tensors.h"

namespace penstock::cuda {

float* CacheAttention::sums_of_pieces(const AttentionOnDevice& attention, int n_pieces) {
  const auto n_heads = static_cast<size_t>(attention.layer.n_kv_heads * attention.n_queries);
  const size_t n =
      static_cast<size_t>(n_pieces) * n_heads * static_cast<size_t>(attention.layer.value_dim + 2);
  const Result<void*> taken = memory_.take(n * sizeof(float));
  if (!taken) device_.give_up(taken.error());
  return static_cast<float*>(taken.value_or(nullptr));
}

bool CacheAttention::flashes(const AttentionOnDevice& attention) const {
  const KvLayerOnDevice& layer = attention.layer;
  return flash_ && !invariant_ && attention.terms.columns == nullptr &&
         layer.code != KvCode::kF32 && layer.has_values() && layer.value_dim == layer.head_dim &&
         layer.head_dim % 16 == 0 && layer.head_dim <= (layer.is_narrow() ? 128 : 256);
}

// Attention of the tokens for which FlashPieces is made.
template <class K>
void CacheAttention::attend_pieces(K pieces) {
  const int rows = pieces.q.rows, heads = pieces.layer.n_kv_heads * pieces.tiles();
  const int n_pieces = upload_.few_piece_room();
  if (n_pieces == 0) return device_.launch(pieces, Grid{rows, heads, pieces.shared_bytes()});
  pieces.sums = sums_of_pieces(pieces, n_pieces);
  device_.launch(pieces, Grid{n_pieces, heads, pieces.shared_bytes()});
  const FlashJoin join{pieces, pieces.sums, n_pieces};
  device_.launch(join, Grid{rows, pieces.layer.n_kv_heads * pieces.n_queries, join.shared_bytes()});
}

template <int kDim, KvCode kCode>
void CacheAttention::attend_flash(const AttentionOnDevice& attention, const NewTokens* own) {
  constexpr bool kHalves = kCode == KvCode::kF16 || kCode == KvCode::kBF16;
  if constexpr (kHalves) {
    if (own != nullptr)
      return attend_pieces(FlashPieces<kDim, kCode, true>{attention, nullptr, *own});
  }
  const int rows = attention.q.rows, n_kv_heads = attention.layer.n_kv_heads;
  if (upload_.has_many()) {
    const auto launch_tiles = [&](const auto& tiles) {
      const int n = (rows + tiles.tokens - 1) / tiles.tokens;
      device_.launch(tiles, Grid{n, n_kv_heads * tiles.head_tiles, tiles.shared_bytes()});
    };
    bool launched = false;
    if constexpr (kHalves) {
      using Wide = FlashWide<kDim, kCode>;
      launched = wide_ && Wide::suits(attention);
      if (launched) launch_tiles(Wide(attention));
    }
    if (!launched) launch_tiles(FlashTiles<kDim, kCode>(attention));
  }
  if (upload_.has_few()) attend_pieces(FlashPieces<kDim, kCode>{attention, nullptr});
}

void CacheAttention::flash(const AttentionOnDevice& attention, const NewTokens* own) {
  const int dim = attention.layer.head_dim;
  const auto of_code = [&]<KvCode kCode>() {
    if (dim <= 64) {
      attend_flash<64, kCode>(attention, own);
    } else if (dim <= 128) {
      attend_flash<128, kCode>(attention, own);
    } else if constexpr (kCode != KvCode::kI4) {
      attend_flash<256, kCode>(attention, own);
    }
  };
  switch (attention.layer.code) {
    case KvCode::kF16: return of_code.operator()<KvCode::kF16>();
    case KvCode::kBF16: return of_code.operator()<KvCode::kBF16>();
    case KvCode::kI8: return of_code.operator()<KvCode::kI8>();
    case KvCode::kF8: return of_code.operator()<KvCode::kF8>();
    case KvCode::kI4: return of_code.operator()<KvCode::kI4>();
    case KvCode::kF32: break;
  }
}

// Of a cache of 4 bits: with rotated queries, and the results rotated back.
void CacheAttention::flash_turned(AttentionOnDevice attention) {
  const KvLayerOnDevice& layer = attention.layer;
  const Rows q = attention.q;
  const size_t bytes = static_cast<size_t>(q.rows) * static_cast<size_t>(q.cols) * sizeof(float);
  const Result<void*> taken = memory_.take(bytes);
  if (!taken) return device_.give_up(taken.error());
  attention.q = {static_cast<float*>(*taken), q.cols, q.rows, q.cols};
  const auto turn = [&](Rows from, Rows to, int rotated, bool back) {
    const TurnHeads kernel{from, to, layer.head_dim, rotated, back};
    device_.launch(kernel, Grid{from.rows, from.cols / layer.head_dim, kernel.shared_bytes()});
  };
  turn(q, attention.q, layer.rotated, false);
  flash(attention, nullptr);
  turn(attention.out, attention.out, layer.rotated_values, true);
}

template <class Whole, class Pieces, class Join>
void CacheAttention::attend_tokens(const AttentionOnDevice& attention) {
  const Attend sizes{attention};
  const int heads = attention.layer.n_kv_heads * sizes.tiles(), n_rows = attention.q.rows,
            shared_bytes = sizes.shared_bytes(), n_pieces = upload_.piece_room();
  if (n_pieces == 0) return device_.launch(Whole{attention}, Grid{n_rows, heads, shared_bytes});
  float* const sums = sums_of_pieces(attention, n_pieces);
  device_.launch(Pieces{attention, sums}, Grid{n_pieces, heads, shared_bytes});
  const int joining_bytes = attention.layer.is_narrow() ? shared_bytes : 0;
  device_.launch(Join{attention, sums}, Grid{n_rows, heads, joining_bytes});
}

void CacheAttention::launch(const AttentionOnDevice& attention) {
  if (flashes(attention))
    return attention.layer.is_narrow() ? flash_turned(attention) : flash(attention, nullptr);
  if (attention.layer.is_narrow())
    return attend_tokens<AttendNarrow, AttendNarrowPieces, JoinNarrowPieces>(attention);
  attend_tokens<Attend, AttendPieces, JoinPieces>(attention);
}

AttentionOnDevice CacheAttention::attention_of(Tensor q, const KvCache& cache,
                                               const AttentionParams& params, Tensor out) const {
  const KvLayerSpec& spec = cache.spec().layers[static_cast<size_t>(params.layer)];
  PENSTOCK_CHECK(q.cols == params.n_heads * spec.head_dim &&
                 out.cols == params.n_heads * spec.value_dim());
  PENSTOCK_CHECK(params.n_heads % spec.n_kv_heads == 0 && q.rows == out.rows);
  AttentionOnDevice kernel{};
  kernel.q = rows_of(q), kernel.out = rows_of(out);
  kernel.layer = static_cast<const CudaKvCache&>(cache).layer(params.layer);
  kernel.group = spec.group;
  kernel.n_queries = params.n_heads / spec.n_kv_heads;
  kernel.window = spec.window, kernel.chunked = spec.chunked, kernel.both_ways = spec.both_ways;
  kernel.sees_parts = spec.sees_parts;
  kernel.scale = params.scale, kernel.softcap = params.softcap;
  kernel.sinks = device_data(params.sinks), kernel.slopes = device_data(params.slopes);
  if (const RelativeTerms& terms = params.relative; terms.columns != nullptr) {
    kernel.terms.columns = device_data(terms.columns);
    kernel.terms.reach = terms.columns->size() / 2, kernel.terms.n_columns = terms.n_columns;
    kernel.terms.table = device_data(terms.table);
    if (terms.of_query.cols > 0) kernel.terms.of_query = rows_of(terms.of_query);
    if (terms.of_key.cols > 0) kernel.terms.of_key = rows_of(terms.of_key);
  }
  kernel.batch = upload_.on_device();
  const auto block_size = static_cast<unsigned>(kernel.layer.block_size);
  kernel.block_shift = std::has_single_bit(block_size) ? std::countr_zero(block_size) : -1;
  return kernel;
}

void CacheAttention::attend(Tensor q, const KvCache& cache, const AttentionParams& params,
                            Tensor out) {
  const AttentionOnDevice attention = attention_of(q, cache, params, out);
  if (sparse_.takes(cache, params)) return sparse_.attend(attention, cache, params);
  launch(attention);
}

bool CacheAttention::store_and_attend(Tensor q, const NewTokens& own, KvCache& cache,
                                      const AttentionParams& params, Tensor out) {
  if (sparse_.takes(cache, params)) return false;
  const AttentionOnDevice kernel = attention_of(q, cache, params, out);
  const KvLayerOnDevice& layer = kernel.layer;
  // Measured on an H200: fusing saves a step of 1 to 8 tokens up to 2 %, and costs one of 64 tokens
  // up to 3 %.
  constexpr int kMostRows = 16;
  if (!fuses_stores_ || !flashes(kernel) || !upload_.all_few() || q.rows > kMostRows) return false;
  if (layer.has_scales()) return false;  // rows get their scales when they are stored
  // nothing to fuse: neither K and V to store nor a rotation
  if (own.k.cols == 0 && own.rotation.inv_freq == nullptr) return false;
  const int kv_cols = own.k.cols > 0 ? layer.n_kv_heads * layer.head_dim : 0;
  PENSTOCK_CHECK(own.k.cols == kv_cols && own.v.cols == kv_cols);
  // The kernel loads values as vectors of four floats.
  if (reinterpret_cast<uintptr_t>(own.v.data) % 16 != 0 || own.v.stride % 4 != 0) return false;
  flash(kernel, &own);
  return true;
}

}  // namespace penstock::cuda
