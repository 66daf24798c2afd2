#include "ops/cuda/kernels/attention.h"

#include "ops/cuda/kernels/rotation.h"
#include "ops/cuda/kernels/sight.h"
#include "ops/cuda/kernels/thread.h"

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
  if (is_key) {
    store_row(t, layer, k.row(t.x) + head * dim, dim, layer.key(slot, head),
              layer.key_scale(slot, head));
  } else {
    store_row(t, layer, v.row(t.x) + head * layer.value_dim, layer.value_dim,
              layer.value(slot, head), layer.value_scale(slot, head));
  }
}
PENSTOCK_KERNEL(StoreKv)

// --- Attention.

namespace {

constexpr float kNothing = -INFINITY;

PENSTOCK_DEVICE float number_at(KvCode code, const std::byte* row, int i) {
  switch (code) {
    case KvCode::kF32: return reinterpret_cast<const float*>(row)[i];
    case KvCode::kF16: return half_to_float(reinterpret_cast<const uint16_t*>(row)[i]);
    case KvCode::kBF16: return bf16_to_float(reinterpret_cast<const uint16_t*>(row)[i]);
    case KvCode::kF8: return f8_to_float(static_cast<uint8_t>(row[i]));
    default: return static_cast<float>(reinterpret_cast<const int8_t*>(row)[i]);
  }
}

// Some query heads of one kv head for one token: a block's work.
struct HeadTile {
  int kv_head, first_query, n;
  float *q, *sums, *weights, *most, *total, *factor;  // in shared memory
  float* joined;                                      // sums of earlier pieces

  PENSTOCK_DEVICE HeadTile(const Thread& t, const AttentionOnDevice& k) {
    const int tiles = (k.n_queries + Attend::kHeads - 1) / Attend::kHeads;
    kv_head = t.y / tiles;
    const int first = t.y % tiles * Attend::kHeads, left = k.n_queries - first;
    first_query = kv_head * k.n_queries + first;
    n = left < Attend::kHeads ? left : Attend::kHeads;
    q = t.shared_as<float>();
    sums = q + Attend::kHeads * k.layer.head_dim;
    weights = sums + Attend::kHeads * k.layer.value_dim;
    most = weights + Attend::kHeads * Attend::kChunk;
    total = most + Attend::kHeads, factor = total + Attend::kHeads;
    joined = factor + Attend::kHeads;
  }
};

PENSTOCK_DEVICE void score_token(const Thread& t, const AttentionOnDevice& k, const HeadTile& tile,
                                 const Sight& sight, int token, int index, int slot) {
  constexpr int kHeads = Attend::kHeads, kChunk = Attend::kChunk;
  if (slot < 0) {
    for (int h = 0; h < tile.n; ++h) tile.weights[h * kChunk + t.index] = kNothing;
    return;
  }
  const int dim = k.layer.head_dim;
  const std::byte* const key = k.layer.key(slot, tile.kv_head);
  float dots[kHeads] = {};
  for (int i = 0; i < dim; ++i) {
    const float x = number_at(k.layer.code, key, i);
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
      if (h < tile.n) dots[h] += tile.q[h * dim + i] * x;
  }
  const float unit =
      k.layer.has_scales() ? k.scale * *k.layer.key_scale(slot, tile.kv_head) : k.scale;
  const int position = sight.position_of(index);
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (h >= tile.n) continue;
    float score = dots[h] * unit;
    if (k.softcap > 0.0f) score = k.softcap * tanhf(score / k.softcap);
    if (k.slopes != nullptr)
      score -=
          k.slopes[tile.first_query + h] * fabsf(static_cast<float>(position - sight.position));
    if (k.terms.columns != nullptr)
      score += k.terms.sum(token, tile.first_query + h, position - sight.position);
    tile.weights[h * kChunk + t.index] = score;
  }
}

// Online softmax of a chunk: turns scores into weights. One warp per head.
PENSTOCK_DEVICE void weigh_chunk(const Thread& t, const HeadTile& tile) {
  const int h = t.warp();
  if (h >= tile.n) return;
  float* const weights = tile.weights + h * Attend::kChunk;
  const float before = tile.most[h];
  float most = before;
  for (int i = t.lane(); i < Attend::kChunk; i += kWarp) most = fmaxf(most, weights[i]);
  most = warp_max(t, most);
  const float reference = most == kNothing ? 0.0f : most;
  float sum = 0.0f;
  for (int i = t.lane(); i < Attend::kChunk; i += kWarp) {
    weights[i] = expf(weights[i] - reference);
    sum += weights[i];
  }
  sum = warp_sum(t, sum);
  t.sync_warp();  // all lanes have read most and total, which lane 0 overwrites
  if (t.lane() != 0) return;
  tile.factor[h] = expf(before - reference);
  tile.total[h] = tile.total[h] * tile.factor[h] + sum;
  tile.most[h] = most;
}

// Attention over the visible tokens of the piece [begin, end): sets tile.sums, most and total.
PENSTOCK_DEVICE void attend_piece(const Thread& t, const AttentionOnDevice& k, const HeadTile& tile,
                                  const Sight& sight, int token, int begin, int end) {
  constexpr int kThreads = Attend::kThreads, kChunk = Attend::kChunk, kHeads = Attend::kHeads;
  const KvLayerOnDevice& layer = k.layer;
  const KvOnDevice& kv = k.batch->kv[k.group];
  const int first_position = kv.first_positions[sight.sequence], value_dim = layer.value_dim;
  const int32_t* const table = kv.block_tables + kv.table_offsets[sight.sequence];
  const auto slot_of = [&](int index) {
    const int at = index - first_position;
    return table[at / layer.block_size] * layer.block_size + at % layer.block_size;
  };
  t.sync();
  for (int i = t.index; i < tile.n * value_dim; i += kThreads) tile.sums[i] = 0.0f;
  if (t.index < kHeads) tile.most[t.index] = kNothing, tile.total[t.index] = 0.0f;
  const int first = sight.first > begin ? sight.first : begin,
            last = sight.end < end ? sight.end : end;
  for (int chunk = first / kChunk * kChunk; chunk < last; chunk += kChunk) {
    t.sync();
    const int index = chunk + t.index;
    score_token(t, k, tile, sight, token, index, sight.sees(index) ? slot_of(index) : -1);
    t.sync();
    weigh_chunk(t, tile);
    t.sync();
    const int chunk_end = chunk + kChunk < last ? chunk + kChunk : last;
    for (int d = t.index; d < value_dim; d += kThreads) {
      float sums[kHeads];
#pragma unroll
      for (int h = 0; h < kHeads; ++h)
        sums[h] = h < tile.n ? tile.sums[h * value_dim + d] * tile.factor[h] : 0.0f;
      for (int i = first > chunk ? first : chunk; i < chunk_end; ++i) {
        if (!sight.sees(i)) continue;
        const int slot = slot_of(i);
        float x = number_at(layer.code, layer.value(slot, tile.kv_head), d);
        if (layer.has_scales()) x *= *layer.value_scale(slot, tile.kv_head);
#pragma unroll
        for (int h = 0; h < kHeads; ++h)
          if (h < tile.n) sums[h] += tile.weights[h * kChunk + i - chunk] * x;
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h)
        if (h < tile.n) tile.sums[h * value_dim + d] = sums[h];
    }
  }
  t.sync();
}

// Joins the results of pieces of one head, in order, by their softmax references.
struct Joined {
  float most = kNothing, total = 0.0f;
  float before, here;  // factors of the sums of earlier pieces and of the last piece

  // REQUIRES: at least one token of the piece is visible.
  PENSTOCK_DEVICE void join(float piece_most, float piece_total) {
    const float now = fmaxf(most, piece_most);
    before = expf(most - now), here = expf(piece_most - now);
    total = fmaf(total, before, piece_total * here);
    most = now;
  }
  // An explicit fmaf, so that Attend and JoinPieces give the same bits.
  PENSTOCK_DEVICE float sum(float so_far, float piece) const {
    return fmaf(so_far, before, piece * here);
  }
  // Returns the final factor of the sums: the inverse of the total weight, with the head's sink.
  PENSTOCK_DEVICE float factor(const float* sinks, int head) const {
    return 1.0f / (sinks != nullptr ? total + expf(fminf(sinks[head] - most, 87.0f)) : total);
  }
};

PENSTOCK_DEVICE void load_queries(const Thread& t, const AttentionOnDevice& k, const HeadTile& tile,
                                  int token) {
  const int dim = k.layer.head_dim;
  const float* const queries = k.q.row(token) + tile.first_query * dim;
  for (int i = t.index; i < tile.n * dim; i += Attend::kThreads) tile.q[i] = queries[i];
}

PENSTOCK_DEVICE void clear_heads(const Thread& t, const AttentionOnDevice& k,
                                 const HeadTile& tile) {
  const int value_dim = k.layer.value_dim;
  float* const to = k.out.row(t.x) + tile.first_query * value_dim;
  for (int i = t.index; i < tile.n * value_dim; i += Attend::kThreads) to[i] = 0.0f;
}

}  // namespace

PENSTOCK_BODY void Attend::operator()(const Thread& t) const {
  static_assert(kHeads == kThreads / kWarp && kPiece % kChunk == 0);
  const int value_dim = layer.value_dim;
  const HeadTile tile(t, *this);
  if (t.x >= batch->n_tokens) return clear_heads(t, *this, tile);
  const Sight sight = sight_of(*this, t.x);
  load_queries(t, *this, tile, t.x);
  float* const to = out.row(t.x) + tile.first_query * value_dim;
  for (int i = t.index; i < tile.n * value_dim; i += kThreads) tile.joined[i] = 0.0f;
  Joined joined[kHeads];
  for (int begin = sight.first / kPiece * kPiece; begin < sight.end; begin += kPiece) {
    attend_piece(t, *this, tile, sight, t.x, begin, begin + kPiece);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h >= tile.n || tile.most[h] == kNothing) continue;
      joined[h].join(tile.most[h], tile.total[h]);
      for (int d = t.index; d < value_dim; d += kThreads) {
        float& sum = tile.joined[h * value_dim + d];
        sum = joined[h].sum(sum, tile.sums[h * value_dim + d]);
      }
    }
  }
  // No sync: every thread reads only the sums that it wrote.
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (h >= tile.n) continue;
    const float factor = joined[h].factor(sinks, tile.first_query + h);
    for (int d = t.index; d < value_dim; d += kThreads)
      to[h * value_dim + d] = tile.joined[h * value_dim + d] * factor;
  }
}
PENSTOCK_KERNEL(Attend)

PENSTOCK_BODY void AttendPieces::operator()(const Thread& t) const {
  if (t.x >= batch->n_pieces) return;
  const int token = batch->piece_tokens[t.x], value_dim = layer.value_dim;
  const int begin = (t.x - batch->first_pieces[token]) * Attend::kPiece;
  const HeadTile tile(t, *this);
  load_queries(t, *this, tile, token);
  attend_piece(t, *this, tile, sight_of(*this, token), token, begin, begin + Attend::kPiece);
  const int n_heads = q.cols / layer.head_dim;
  for (int h = 0; h < tile.n; ++h) {
    float* const to =
        sums + (static_cast<int64_t>(t.x) * n_heads + tile.first_query + h) * (value_dim + 2);
    for (int d = t.index; d < value_dim; d += kThreads) to[d] = tile.sums[h * value_dim + d];
    if (t.index == 0) to[value_dim] = tile.most[h], to[value_dim + 1] = tile.total[h];
  }
}
PENSTOCK_KERNEL(AttendPieces)

PENSTOCK_BODY void JoinPieces::operator()(const Thread& t) const {
  const HeadTile tile(t, *this);
  if (t.x >= batch->n_tokens) return clear_heads(t, *this, tile);
  const int value_dim = layer.value_dim, n_heads = q.cols / layer.head_dim;
  const int first_piece = batch->first_pieces[t.x], n_pieces = pieces_of(*batch, t.x);
  for (int h = 0; h < tile.n; ++h) {
    const int head = tile.first_query + h;
    const auto sums_of = [&](int piece) {
      return sums + (static_cast<int64_t>(piece) * n_heads + head) * (value_dim + 2);
    };
    for (int d = t.index; d < value_dim; d += kThreads) {
      Joined joined;
      float sum = 0.0f;
      for (int piece = first_piece; piece < first_piece + n_pieces; ++piece) {
        const float* const from = sums_of(piece);
        if (from[value_dim] == kNothing) continue;
        joined.join(from[value_dim], from[value_dim + 1]);
        sum = joined.sum(sum, from[d]);
      }
      out.row(t.x)[head * value_dim + d] = sum * joined.factor(sinks, head);
    }
  }
}
PENSTOCK_KERNEL(JoinPieces)

}  // namespace penstock::cuda
