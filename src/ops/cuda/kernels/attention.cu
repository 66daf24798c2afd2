#include "ops/cuda/kernels/attention.h"

#include "ops/cuda/kernels/attend_parts.h"
#include "ops/cuda/kernels/narrow.h"
#include "ops/cuda/kernels/rotation.h"

namespace penstock::cuda {

PENSTOCK_BODY void RotateHeads::operator()(const Thread& t) const {
  if (t.x >= batch->n_tokens) return;
  const int n_queries = q.cols / head_dim;
  float* const head =
      t.y < n_queries ? q.row(t.x) + t.y * head_dim : k.row(t.x) + (t.y - n_queries) * head_dim;
  const Rotation own = rotation_of(rotation, *batch, t.x);
  for (int i = t.index; i < rotation.half; i += kThreads)
    rotate_pair(own, *batch, t.x, head, head, i);
}
PENSTOCK_KERNEL(RotateHeads)

// --- Storing keys and values.

namespace {

PENSTOCK_DEVICE void store_number(KvCode code, std::byte* row, int i, float x) {
  if (code == KvCode::kF32) reinterpret_cast<float*>(row)[i] = x;
  if (code == KvCode::kF16) reinterpret_cast<uint16_t*>(row)[i] = float_to_half(x);
  if (code == KvCode::kBF16) reinterpret_cast<uint16_t*>(row)[i] = float_to_bf16(x);
}

// Stores a head's row of n numbers in the cache's type. REQUIRES: called by a whole warp.
PENSTOCK_DEVICE void store_row(const Thread& t, const KvLayerOnDevice& layer, const float* x, int n,
                               std::byte* row, float* scale) {
  if (!layer.has_scales()) {
    constexpr int kAtOnce = 4;  // loads in flight per lane
    for (int from = t.lane(); from < n; from += kAtOnce * kWarp) {
      float numbers[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = from + j * kWarp;
        numbers[j] = i < n ? x[i] : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = from + j * kWarp;
        if (i < n) store_number(layer.code, row, i, numbers[j]);
      }
    }
    return;
  }
  float most = 0.0f;
  for (int i = t.lane(); i < n; i += kWarp) most = fmaxf(most, fabsf(x[i]));
  most = warp_max(t, most);
  const bool floats = layer.code == KvCode::kF8;
  const float largest = floats ? 448.0f : 127.0f, up = most > 0.0f ? largest / most : 0.0f;
  for (int i = t.lane(); i < n; i += kWarp) {
    const float code = x[i] * up;
    row[i] = floats ? std::byte{float_to_f8(code)}
                    : static_cast<std::byte>(static_cast<int8_t>(roundf(code)));
  }
  if (t.lane() == 0) *scale = most / largest;
}

// Rotates a head's row in shared memory and stores it in 4 bits. REQUIRES: called by a whole warp.
PENSTOCK_DEVICE void store_narrow_row(const Thread& t, const KvLayerOnDevice& layer, int slot,
                                      int head, const float* x, bool is_key) {
  const int n = is_key ? layer.head_dim : layer.value_dim;
  float* const row =
      t.shared_as<float>() +
      t.warp() * (layer.head_dim > layer.value_dim ? layer.head_dim : layer.value_dim);
  for (int i = t.lane(); i < n; i += kWarp) row[i] = x[i];
  turn_rows(WarpTeam{t}, row, n, n, is_key ? layer.rotated : layer.rotated_values, false);
  if (is_key) {
    store_codes(t, row, n,
                {layer.key(slot, head), layer.key_factors(slot, head), layer.row_bytes,
                 layer.key_scale(slot, head)});
  } else {
    store_codes(t, row, n,
                {layer.value(slot, head), layer.value_factors(slot, head), layer.value_row_bytes,
                 layer.value_scale(slot, head)});
  }
}

// Rotates up to kHeads of n heads of token t.x, starting at `heads`, by one warp: each angle is
// computed once for all heads, and all loads precede the stores.
PENSTOCK_DEVICE void rotate_heads(const Thread& t, const Rotation& rotation,
                                  const BatchOnDevice& batch, float* heads, int n, int dim) {
  constexpr int kHeads = StoreKv::kHeads;
  for (int i = t.lane(); i < rotation.half; i += kWarp) {
    const Turn turn(rotation, batch, t.x, i);
    float a[kHeads], b[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
      if (h < n) a[h] = heads[h * dim + turn.first], b[h] = heads[h * dim + turn.second];
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
      if (h < n) turn.apply(a[h], b[h], heads + h * dim);
  }
}

}  // namespace

PENSTOCK_BODY void StoreKv::operator()(const Thread& t) const {
  const int dim = layer.head_dim, n_tokens = batch->n_tokens, n_queries = q.cols / dim;
  const bool is_token = t.x < n_tokens;
  // The warp has up to kHeads heads of q, or one of k, or one of v.
  const int warp = t.y * kWarps + t.warp(), other = warp - query_warps;
  const bool is_key = other >= 0 && other < layer.n_kv_heads, is_value = other >= layer.n_kv_heads;
  const int head = is_value ? other - layer.n_kv_heads : other, first = warp * kHeads;
  if (rotation.inv_freq != nullptr && is_token && !is_value) {
    float* const heads = is_key ? k.row(t.x) + head * dim : q.row(t.x) + first * dim;
    rotate_heads(t, rotation_of(rotation, *batch, t.x), *batch, heads,
                 is_key ? 1 : n_queries - first, dim);
  }
  t.sync();
  if (other < 0 || head >= layer.n_kv_heads || (is_value && !layer.has_values())) return;
  const int slot = is_token ? batch->kv[group].slots[t.x]
                            : layer.spare_slot + (t.x - n_tokens) % layer.block_size;
  if (!layer.stores(slot)) return;
  const float* const row = is_key ? k.row(t.x) + head * dim : v.row(t.x) + head * layer.value_dim;
  if (layer.is_narrow()) {
    store_narrow_row(t, layer, slot, head, row, is_key);
  } else if (is_key) {
    store_row(t, layer, row, dim, layer.key(slot, head), layer.key_scale(slot, head));
  } else {
    store_row(t, layer, row, layer.value_dim, layer.value(slot, head),
              layer.value_scale(slot, head));
  }
}
PENSTOCK_KERNEL(StoreKv)

// --- Attention.

PENSTOCK_BODY void Attend::operator()(const Thread& t) const {
  static_assert(kHeads == kThreads / kWarp && kPiece % kChunk == 0);
  const HeadTile tile(t, *this);
  if (t.x >= batch->n_tokens) return clear_heads(t, *this, tile);
  attend_all(t, *this, tile, SeenList(*this, t.x));
}
PENSTOCK_KERNEL(Attend)

PENSTOCK_BODY void AttendPieces::operator()(const Thread& t) const {
  if (t.x >= batch->n_pieces) return;
  const int token = batch->piece_tokens[t.x];
  const int begin = (t.x - batch->first_pieces[token]) * Attend::kPiece;
  const HeadTile tile(t, *this);
  load_queries<false>(t, *this, tile, token);
  attend_piece(t, *this, tile, SeenList(*this, token), token, begin, begin + Attend::kPiece);
  put_piece(t, *this, tile, t.x, sums);
}
PENSTOCK_KERNEL(AttendPieces)

PENSTOCK_BODY void JoinPieces::operator()(const Thread& t) const {
  const HeadTile tile(t, *this);
  if (t.x >= batch->n_tokens) return clear_heads(t, *this, tile);
  join_pieces<false>(t, *this, tile, {sums, batch->first_pieces[t.x], pieces_of(*batch, t.x)});
}
PENSTOCK_KERNEL(JoinPieces)

}  // namespace penstock::cuda
