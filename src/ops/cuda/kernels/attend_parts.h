// Parts of attention that computes a token at a time: a thread per key has its scores, then a thread
// per feature sums the values. What a token attends to is a list of places in the cache.
#pragma once
#include "ops/cuda/kernels/narrow.h"
#include "ops/cuda/kernels/sight.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

PENSTOCK_DEVICE float number_at(KvCode code, const std::byte* row, int i) {
  switch (code) {
    case KvCode::kF32: return reinterpret_cast<const float*>(row)[i];
    case KvCode::kF16: return half_to_float(reinterpret_cast<const uint16_t*>(row)[i]);
    case KvCode::kBF16: return bf16_to_float(reinterpret_cast<const uint16_t*>(row)[i]);
    case KvCode::kF8: return f8_to_float(static_cast<uint8_t>(row[i]));
    default: return static_cast<float>(reinterpret_cast<const int8_t*>(row)[i]);
  }
}

// A token's key and value in the cache.
struct KeyPlace {
  const std::byte *key = nullptr, *value = nullptr;  // null: the token is not attended to
  float scale = 1.0f, value_scale = 1.0f;            // of types with scales
  const std::byte *factors = nullptr, *value_factors = nullptr;  // of kI4

  PENSTOCK_DEVICE KeyPlace() {}  // none
  PENSTOCK_DEVICE KeyPlace(const KvLayerOnDevice& layer, int slot, int kv_head)
      : key(layer.key(slot, kv_head)), value(layer.value(slot, kv_head)) {
    if (!layer.has_scales()) return;
    scale = *layer.key_scale(slot, kv_head), value_scale = *layer.value_scale(slot, kv_head);
    if (!layer.is_narrow()) return;
    factors = layer.key_factors(slot, kv_head);
    value_factors = layer.value_factors(slot, kv_head);
  }
};

// Blocks of a sequence in a group of the cache.
struct SequenceBlocks {
  const int32_t* table;
  int first_position, block_size;

  PENSTOCK_DEVICE SequenceBlocks(const BatchOnDevice& batch, int group, int sequence, int size)
      : table(batch.kv[group].block_tables + batch.kv[group].table_offsets[sequence]),
        first_position(batch.kv[group].first_positions[sequence]),
        block_size(size) {}
  PENSTOCK_DEVICE int slot_of(int index) const {
    const int at = index - first_position;
    return table[at / block_size] * block_size + at % block_size;
  }
};

// The tokens of its sequence that a token sees, by index in the sequence.
struct SeenList {
  static constexpr bool kIsNarrow = false;  // whether the cache is one of kI4
  const AttentionOnDevice& k;
  Sight sight;
  SequenceBlocks blocks;
  int first, end;

  PENSTOCK_DEVICE SeenList(const AttentionOnDevice& of, int token)
      : k(of),
        sight(sight_of(of, token)),
        blocks(*of.batch, of.group, sight.sequence, of.layer.block_size),
        first(sight.first),
        end(sight.end) {}
  PENSTOCK_DEVICE KeyPlace at(int i, int kv_head) const {
    return sight.sees(i) ? KeyPlace(k.layer, blocks.slot_of(i), kv_head) : KeyPlace();
  }
  // Distance from the token's position to that of key i.
  PENSTOCK_DEVICE int distance(int i) const { return sight.position_of(i) - sight.position; }
};

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

// Adds products of a key, without its scale, and n of kHeads queries [head][dim].
template <int kHeads>
PENSTOCK_DEVICE void add_narrow_dots(const std::byte* key, const std::byte* factors, const float* q,
                                     int dim, int n, float (&dots)[kHeads]) {
  constexpr int kStep = 8;  // features, whose codes are a word
  const auto add = [&](int d, float x, float(&to)[kHeads]) {
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
      if (h < n) to[h] = fmaf(q[h * dim + d], x, to[h]);
  };
  int first = 0;
#pragma unroll 1
  for (; first + kStep <= dim; first += kStep) {
    const uint32_t codes = *reinterpret_cast<const uint32_t*>(key + first / 2);
    const auto factor = static_cast<int>(factors[first / KvLayerOnDevice::kFactorFeatures]);
    float sums[kHeads] = {};
#pragma unroll
    for (int i = 0; i < kStep; ++i) add(first + i, number_of_code(codes >> i * 4), sums);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) dots[h] = fmaf(sums[h], static_cast<float>(factor), dots[h]);
  }
#pragma unroll 1
  for (; first < dim; ++first) add(first, narrow_number(key, factors, first), dots);
}

// Scores of key `index` of the list, which is the thread's.
template <class List>
PENSTOCK_DEVICE void score_token(const Thread& t, const AttentionOnDevice& k, const HeadTile& tile,
                                 const List& list, int token, int index) {
  constexpr int kHeads = Attend::kHeads, kChunk = Attend::kChunk;
  const KeyPlace place =
      index >= list.first && index < list.end ? list.at(index, tile.kv_head) : KeyPlace();
  if (place.key == nullptr) {
    for (int h = 0; h < tile.n; ++h) tile.weights[h * kChunk + t.index] = kNothing;
    return;
  }
  const int dim = k.layer.head_dim;
  float dots[kHeads] = {};
  if constexpr (List::kIsNarrow) {
    add_narrow_dots(place.key, place.factors, tile.q, dim, tile.n, dots);
  } else {
    for (int i = 0; i < dim; ++i) {
      const float x = number_at(k.layer.code, place.key, i);
#pragma unroll
      for (int h = 0; h < kHeads; ++h)
        if (h < tile.n) dots[h] += tile.q[h * dim + i] * x;
    }
  }
  const float unit = k.layer.has_scales() ? k.scale * place.scale : k.scale;
  const int distance = list.distance(index);
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (h >= tile.n) continue;
    float score = dots[h] * unit;
    if (k.softcap > 0.0f) score = k.softcap * tanhf(score / k.softcap);
    if (k.slopes != nullptr)
      score -= k.slopes[tile.first_query + h] * fabsf(static_cast<float>(distance));
    if (k.terms.columns != nullptr) score += k.terms.sum(token, tile.first_query + h, distance);
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

// Attention over the piece [begin, end) of the list: sets tile.sums, most and total.
template <class List>
PENSTOCK_DEVICE void attend_piece(const Thread& t, const AttentionOnDevice& k, const HeadTile& tile,
                                  const List& list, int token, int begin, int end) {
  constexpr int kThreads = Attend::kThreads, kChunk = Attend::kChunk, kHeads = Attend::kHeads;
  const KvLayerOnDevice& layer = k.layer;
  const int value_dim = layer.value_dim;
  t.sync();
  for (int i = t.index; i < tile.n * value_dim; i += kThreads) tile.sums[i] = 0.0f;
  if (t.index < kHeads) tile.most[t.index] = kNothing, tile.total[t.index] = 0.0f;
  const int first = list.first > begin ? list.first : begin, last = list.end < end ? list.end : end;
  for (int chunk = first / kChunk * kChunk; chunk < last; chunk += kChunk) {
    t.sync();
    score_token(t, k, tile, list, token, chunk + t.index);
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
        const KeyPlace place = list.at(i, tile.kv_head);
        if (place.value == nullptr) continue;
        float x = List::kIsNarrow ? narrow_number(place.value, place.value_factors, d)
                                  : number_at(layer.code, place.value, d);
        if (layer.has_scales()) x *= place.value_scale;
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

// Narrow: rotates them, as the cache's keys are.
template <bool Narrow>
PENSTOCK_DEVICE void load_queries(const Thread& t, const AttentionOnDevice& k, const HeadTile& tile,
                                  int token) {
  const int dim = k.layer.head_dim;
  const float* const queries = k.q.row(token) + tile.first_query * dim;
  for (int i = t.index; i < tile.n * dim; i += Attend::kThreads) tile.q[i] = queries[i];
  if constexpr (Narrow)
    turn_rows(BlockTeam<Attend::kThreads>{t}, tile.q, tile.n * dim, dim, k.layer.rotated, false);
}

// Rotates tile.joined back and writes it to token t.x's results.
PENSTOCK_DEVICE void turn_back(const Thread& t, const AttentionOnDevice& k, const HeadTile& tile) {
  const int value_dim = k.layer.value_dim, total = tile.n * value_dim;
  turn_rows(BlockTeam<Attend::kThreads>{t}, tile.joined, total, value_dim, k.layer.rotated_values,
            true);
  float* const to = k.out.row(t.x) + tile.first_query * value_dim;
  for (int i = t.index; i < total; i += Attend::kThreads) to[i] = tile.joined[i];
}

PENSTOCK_DEVICE void clear_heads(const Thread& t, const AttentionOnDevice& k,
                                 const HeadTile& tile) {
  const int value_dim = k.layer.value_dim;
  float* const to = k.out.row(t.x) + tile.first_query * value_dim;
  for (int i = t.index; i < tile.n * value_dim; i += Attend::kThreads) to[i] = 0.0f;
}

// All pieces of the list, one after the other.
template <class List>
PENSTOCK_DEVICE void attend_all(const Thread& t, const AttentionOnDevice& k, const HeadTile& tile,
                                const List& list) {
  constexpr int kThreads = Attend::kThreads, kHeads = Attend::kHeads, kPiece = Attend::kPiece;
  const int value_dim = k.layer.value_dim;
  load_queries<List::kIsNarrow>(t, k, tile, t.x);
  float* const to = List::kIsNarrow ? tile.joined : k.out.row(t.x) + tile.first_query * value_dim;
  for (int i = t.index; i < tile.n * value_dim; i += kThreads) tile.joined[i] = 0.0f;
  Joined joined[kHeads];
  for (int begin = list.first / kPiece * kPiece; begin < list.end; begin += kPiece) {
    attend_piece(t, k, tile, list, t.x, begin, begin + kPiece);
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
    const float factor = joined[h].factor(k.sinks, tile.first_query + h);
    for (int d = t.index; d < value_dim; d += kThreads)
      to[h * value_dim + d] = tile.joined[h * value_dim + d] * factor;
  }
  if constexpr (List::kIsNarrow) turn_back(t, k, tile);
}

// Writes the sums of a piece to place `piece` of sums [piece][query head][value_dim + 2].
PENSTOCK_DEVICE void put_piece(const Thread& t, const AttentionOnDevice& k, const HeadTile& tile,
                               int piece, float* sums) {
  const int value_dim = k.layer.value_dim, n_heads = k.q.cols / k.layer.head_dim;
  for (int h = 0; h < tile.n; ++h) {
    float* const to =
        sums + (static_cast<int64_t>(piece) * n_heads + tile.first_query + h) * (value_dim + 2);
    for (int d = t.index; d < value_dim; d += Attend::kThreads)
      to[d] = tile.sums[h * value_dim + d];
    if (t.index == 0) to[value_dim] = tile.most[h], to[value_dim + 1] = tile.total[h];
  }
}

struct PieceSums {
  const float* sums;  // as put_piece() writes them
  int first, n;       // of a token
};

// Joins the pieces of token t.x. Narrow: in shared memory, where the result is rotated back.
template <bool Narrow>
PENSTOCK_DEVICE void join_pieces(const Thread& t, const AttentionOnDevice& k, const HeadTile& tile,
                                 const PieceSums& pieces) {
  const int value_dim = k.layer.value_dim, n_heads = k.q.cols / k.layer.head_dim;
  float* const to = Narrow ? tile.joined : k.out.row(t.x) + tile.first_query * value_dim;
  for (int h = 0; h < tile.n; ++h) {
    const int head = tile.first_query + h;
    for (int d = t.index; d < value_dim; d += Attend::kThreads) {
      Joined joined;
      float sum = 0.0f;
      for (int piece = pieces.first; piece < pieces.first + pieces.n; ++piece) {
        const float* const from =
            pieces.sums + (static_cast<int64_t>(piece) * n_heads + head) * (value_dim + 2);
        if (from[value_dim] == kNothing) continue;
        joined.join(from[value_dim], from[value_dim + 1]);
        sum = joined.sum(sum, from[d]);
      }
      to[h * value_dim + d] = sum * joined.factor(k.sinks, head);
    }
  }
  if constexpr (Narrow) turn_back(t, k, tile);
}

}  // namespace penstock::cuda
