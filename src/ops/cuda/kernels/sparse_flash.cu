#include "ops/cuda/kernels/sparse_flash.h"

#include "ops/cuda/kernels/cached_pairs.h"
#include "ops/cuda/kernels/chosen_list.h"

namespace penstock::cuda {
namespace {

// A block's shared memory.
template <class K>
struct ChosenMemory {
  int key_row, value_row;  // bytes between rows
  std::byte *high, *low;   // split queries
  std::byte *keys, *values;
  std::byte *weights_high, *weights_low;  // [kHeads][kTokens]
  const std::byte **key_at, **value_at;   // [kTokens] in the cache; null: none
  float *key_scales, *value_scales;       // [kTokens]
  float* units;                           // [kHeads] factors of products
  float *group_most, *group_sums;         // [kGroups][kHeads]
  float *most, *factors, *total;          // [kHeads]; most: [2], of tiles in turn

  PENSTOCK_DEVICE ChosenMemory(const Thread& t, const KvLayerOnDevice& layer) {
    key_row = padded_row_bytes(layer.head_dim);
    value_row = layer.has_values() ? padded_row_bytes(layer.value_dim) : key_row;
    high = t.shared, low = high + K::kHeads * key_row, keys = low + K::kHeads * key_row;
    values = layer.has_values() ? keys + K::kTokens * key_row : keys;
    weights_high = values + K::kTokens * value_row;
    weights_low = weights_high + K::kHeads * K::kWeightBytes;
    key_at = reinterpret_cast<const std::byte**>(weights_low + K::kHeads * K::kWeightBytes);
    value_at = key_at + K::kTokens;
    key_scales = reinterpret_cast<float*>(value_at + K::kTokens);
    value_scales = key_scales + K::kTokens, units = value_scales + K::kTokens;
    group_most = units + K::kHeads, group_sums = group_most + K::kGroups * K::kHeads;
    most = group_sums + K::kGroups * K::kHeads;
    factors = most + 2 * K::kHeads, total = factors + K::kHeads;
  }
};

// Copies rows of n numbers from the cache, 16 bytes a thread where they are as products take them.
template <class K, KvCode kCode>
PENSTOCK_DEVICE void gather_rows(const Thread& t, const K& k, const std::byte* const* from, int n,
                                 std::byte* to, int row_bytes) {
  const KvCode code = k.layer.code;
  const bool chunks = code == kCode && n % 16 == 0;
  const int per_row = (n + 15) / 16 * (chunks ? 2 : 8);
  for (int i = t.index; i < K::kTokens * per_row; i += K::kThreads) {
    const int row = i / per_row, piece = i % per_row;
    const std::byte* const source = from[row];
    std::byte* const at = to + row * row_bytes;
    if (!chunks) {
      const bool has = source != nullptr && 2 * piece < n;
      reinterpret_cast<uint32_t*>(at)[piece] =
          has ? pair_of<kCode>(code, source, 2 * piece, n) : 0u;
    } else if (source != nullptr) {
      t.copy_ahead(at + piece * 16, source + piece * 16);
    } else {
      *reinterpret_cast<Chunk*>(at + piece * 16) = Chunk{};
    }
  }
}

// Gathers the list's places [begin, begin + kTokens), as far as `end`.
template <class K, KvCode kCode>
PENSTOCK_DEVICE void gather(const Thread& t, const K& k, const ChosenList& list, int kv_head,
                            int begin, int end, const ChosenMemory<K>& to) {
  t.sync();  // all warps have read the tile before
  for (int i = t.index; i < K::kTokens; i += K::kThreads) {
    const KeyPlace place = begin + i < end ? list.at(begin + i, kv_head) : KeyPlace();
    to.key_at[i] = place.key, to.value_at[i] = place.value;
    to.key_scales[i] = place.scale, to.value_scales[i] = place.value_scale;
  }
  t.sync();
  gather_rows<K, kCode>(t, k, to.key_at, k.layer.head_dim, to.keys, to.key_row);
  if (k.layer.has_values())
    gather_rows<K, kCode>(t, k, to.value_at, k.layer.value_dim, to.values, to.value_row);
  t.end_copies();
  t.template wait_for_copies<0>();
  t.sync();
}

// Scores of 16 heads and 16 tokens of a tile, a warp's, which become weights.
template <class K, KvCode kCode>
struct TileScores {
  const Thread& t;
  const ChosenMemory<K>& memory;
  int row, group, q4;  // the first of the lane's rows; the other is 8 behind it
  float scores[2][4];

  PENSTOCK_DEVICE TileScores(const Thread& thread, const K& k, const ChosenMemory<K>& m)
      : t(thread), memory(m), q4(thread.lane() % 4) {
    const int tile = t.warp() % (K::kHeads / 16), lane = t.lane();
    row = tile * 16 + lane / 4, group = t.warp() / (K::kHeads / 16);
    const int query_at = (tile * 16 + lane % 16) * memory.key_row + lane / 16 * 16;
    const std::byte* const key =
        memory.keys + (group * 16 + lane / 16 * 8 + lane % 8) * memory.key_row + lane / 8 % 2 * 16;
    float low[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[0][i] = scores[1][i] = low[0][i] = low[1][i] = 0.0f;
    for (int step = 0; step < (k.layer.head_dim + 15) / 16; ++step) {
      uint32_t b[4], a[4], rest[4];
      t.load_matrices(b, key + step * 32);
      t.load_matrices(a, memory.high + query_at + step * 32);
      t.load_matrices(rest, memory.low + query_at + step * 32);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const uint32_t own[2] = {b[2 * n], b[2 * n + 1]};
        Halves<kCode>::mma(t, scores[n], a, own);
        Halves<kCode>::mma(t, low[n], rest, own);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] += low[n][i];
  }
  PENSTOCK_DEVICE int column(int n, int i) const { return group * 16 + 8 * n + 2 * q4 + (i & 1); }

  // Scales and caps products; of the first n_there tokens. Tells the largest of each row.
  PENSTOCK_DEVICE void scale(const K& k, int n_there) {
    float most[2] = {kNothing, kNothing};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = column(n, i);
        float score =
            scores[n][i] * memory.units[row + 8 * (i >> 1)] * (k.scale * memory.key_scales[at]);
        if (k.softcap > 0.0f) score = k.softcap * tanhf(score / k.softcap);
        scores[n][i] = at < n_there ? score : kNothing;
        most[i >> 1] = fmaxf(most[i >> 1], scores[n][i]);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r] = fmaxf(most[r], t.shuffle_xor(most[r], 1));
      most[r] = fmaxf(most[r], t.shuffle_xor(most[r], 2));
      if (q4 == 0) memory.group_most[group * K::kHeads + row + 8 * r] = most[r];
    }
  }
  // The largest score of a row so far.
  PENSTOCK_DEVICE static float most_of(const ChosenMemory<K>& memory, int head, int which) {
    float most = memory.most[which * K::kHeads + head];
#pragma unroll
    for (int g = 0; g < K::kGroups; ++g)
      most = fmaxf(most, memory.group_most[g * K::kHeads + head]);
    return most;
  }
  // Writes weights, and tells their sums.
  PENSTOCK_DEVICE void weigh(int which) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = row + 8 * r;
      const float reference = most_of(memory, head, which);
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float weights[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          weights[e] = expf(scores[n][2 * r + e] - reference);
          sum += weights[e];
          weights[e] *= memory.value_scales[column(n, e)];
        }
        const SplitPair split = Halves<kCode>::split(weights[0], weights[1]);
        const int at = head * K::kWeightBytes + column(n, 0) * 2;
        *reinterpret_cast<uint32_t*>(memory.weights_high + at) = split.hi;
        *reinterpret_cast<uint32_t*>(memory.weights_low + at) = split.lo;
      }
      sum += t.shuffle_xor(sum, 1);
      sum += t.shuffle_xor(sum, 2);
      if (q4 == 0) memory.group_sums[group * K::kHeads + head] = sum;
    }
  }
};

// Sums of a warp's values: features of its chunks, of all heads.
template <class K, KvCode kCode>
struct ValueSums {
  static constexpr int kTiles = K::kHeads / 16;
  float sums[kTiles][K::kChunks][2][4];

  PENSTOCK_DEVICE void clear() {
    each(K::kMostValueDim, 0, [](float& sum, int, int, int) { sum = 0.0f; });
  }
  // Calls f(sum, which of the lane's rows, head, feature) for all sums of features below value_dim.
  template <class F>
  PENSTOCK_DEVICE void each(int value_dim, int thread, F&& f) {
    const int lane = thread % kWarp, warp = thread / kWarp;
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int c = 0; c < K::kChunks; ++c)
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int feature = (c * K::kWarps + warp) * 16 + 8 * n + 2 * (lane % 4) + (i & 1);
            if (feature < value_dim)
              f(sums[m][c][n][i], 2 * m + (i >> 1), 16 * m + lane / 4 + 8 * (i >> 1), feature);
          }
  }
  // Rescales the sums and adds a tile's values.
  PENSTOCK_DEVICE void add(const Thread& t, const K& k, const ChosenMemory<K>& memory) {
    const int lane = t.lane(), n_chunks = (k.layer.value_dim + 15) / 16;
    each(K::kMostValueDim, t.index,
         [&](float& sum, int, int head, int) { sum *= memory.factors[head]; });
#pragma unroll
    for (int step = 0; step < K::kGroups; ++step) {
      uint32_t high[kTiles][4], low[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const int at = (m * 16 + lane % 16) * K::kWeightBytes + step * 32 + lane / 16 * 16;
        t.load_matrices(high[m], memory.weights_high + at);
        t.load_matrices(low[m], memory.weights_low + at);
      }
#pragma unroll
      for (int c = 0; c < K::kChunks; ++c) {
        const int chunk = c * K::kWarps + t.warp();
        if (chunk >= n_chunks) continue;
        uint32_t b[4];
        t.load_transposed(b, memory.values + (step * 16 + lane % 16) * memory.value_row +
                                 chunk * 32 + lane / 16 * 16);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint32_t own[2] = {b[2 * n], b[2 * n + 1]};
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            Halves<kCode>::mma(t, sums[m][c][n], high[m], own);
            Halves<kCode>::mma(t, sums[m][c][n], low[m], own);
          }
        }
      }
    }
  }
};

// The places [begin, end) of the list, a piece: sets the sums, memory.total and, returned, the index of
// memory.most.
template <class K, KvCode kCode>
PENSTOCK_DEVICE int attend_places(const Thread& t, const K& k, const ChosenMemory<K>& memory,
                                  const ChosenList& list, int kv_head, int begin,
                                  ValueSums<K, kCode>& sums) {
  const int end = least(begin + K::kPiece, list.end);
  sums.clear();
  t.sync();
  if (t.index < K::kHeads) memory.most[t.index] = kNothing, memory.total[t.index] = 0.0f;
  int which = 0;
  for (int tile = begin; tile < end; tile += K::kTokens, which ^= 1) {
    gather<K, kCode>(t, k, list, kv_head, tile, end, memory);
    TileScores<K, kCode> scores(t, k, memory);
    scores.scale(k, end - tile);
    t.sync();
    scores.weigh(which);
    if (t.index < K::kHeads) {
      const float most = scores.most_of(memory, t.index, which);
      memory.factors[t.index] = expf(memory.most[which * K::kHeads + t.index] - most);
      memory.most[(which ^ 1) * K::kHeads + t.index] = most;
    }
    t.sync();
    sums.add(t, k, memory);
    if (t.index < K::kHeads) {
      float total = memory.total[t.index] * memory.factors[t.index];
      for (int g = 0; g < K::kGroups; ++g) total += memory.group_sums[g * K::kHeads + t.index];
      memory.total[t.index] = total;
    }
  }
  t.sync();
  return which;
}

}  // namespace

template <KvCode kCode, int kTiles, bool kWhole>
PENSTOCK_BODY void FlashChosen<kCode, kTiles, kWhole>::operator()(const Thread& t) const {
  using K = FlashChosen<kCode, kTiles, kWhole>;
  const int row = kWhole ? t.x : t.x / n_pieces, first = kWhole ? 0 : t.x % n_pieces * kPiece;
  const int n_tiles = (n_queries + kHeads - 1) / kHeads, of_heads = t.y % n_tiles * kHeads,
            kv_head = t.y / n_tiles, n_heads = least(kHeads, n_queries - of_heads);
  const int first_head = kv_head * n_queries + of_heads, value_dim = layer.value_dim;
  if (row >= batch->n_tokens) {
    for (int i = t.index; kWhole && i < n_heads * value_dim; i += kThreads)
      out.row(row)[first_head * value_dim + i] = 0.0f;
    return;
  }
  const ChosenList list(*this, chosen, row, kv_head);
  if (first >= list.end) return;
  const ChosenMemory<K> memory(t, layer);
  for (int h = t.warp(); h < kHeads; h += kWarps) {
    const float* const query =
        h < n_heads ? q.row(row) + (first_head + h) * layer.head_dim : nullptr;
    const float up = split_row<kCode, kMostDim / 2 / kWarp>(t, query, layer.head_dim,
                                                            memory.high + h * memory.key_row,
                                                            memory.low + h * memory.key_row);
    if (t.lane() == 0) memory.units[h] = up;
  }
  ValueSums<K, kCode> of_piece;
  if constexpr (!kWhole) {
    const int which = attend_places<K, kCode>(t, *this, memory, list, kv_head, first, of_piece);
    float* const to = sums + (static_cast<int64_t>(t.x) * (q.cols / layer.head_dim) + first_head) *
                                 (value_dim + 2);
    of_piece.each(value_dim, t.index, [&](float sum, int, int head, int feature) {
      if (head < n_heads) to[head * (value_dim + 2) + feature] = sum;
    });
    if (t.index < n_heads) {
      to[t.index * (value_dim + 2) + value_dim] = memory.most[which * kHeads + t.index];
      to[t.index * (value_dim + 2) + value_dim + 1] = memory.total[t.index];
    }
    return;
  }
  // Of a lane's rows: 16 m + lane / 4, and 8 behind it.
  Joined joined[2 * kTiles];
  ValueSums<K, kCode> all;
  all.clear();
  for (int begin = 0; begin < list.end; begin += kPiece) {
    const int which = attend_places<K, kCode>(t, *this, memory, list, kv_head, begin, of_piece);
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r) {
      const int head = r / 2 * 16 + t.lane() / 4 + r % 2 * 8;
      joined[r].join(memory.most[which * kHeads + head], memory.total[head]);
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float& sum = all.sums[m][c][i / 4][i % 4];
          sum = joined[2 * m + (i >> 1 & 1)].sum(sum, of_piece.sums[m][c][i / 4][i % 4]);
        }
  }
  float factors[2 * kTiles];
#pragma unroll
  for (int r = 0; r < 2 * kTiles; ++r) {
    const int head = r / 2 * 16 + t.lane() / 4 + r % 2 * 8;
    factors[r] = head < n_heads ? joined[r].factor(sinks, first_head + head) : 0.0f;
  }
  float* const to = out.row(row) + first_head * value_dim;
  all.each(value_dim, t.index, [&](float sum, int r, int head, int feature) {
    if (head < n_heads) to[head * value_dim + feature] = sum * factors[r];
  });
}
PENSTOCK_KERNEL(FlashChosen<KvCode::kF16, 1, false>)
PENSTOCK_KERNEL(FlashChosen<KvCode::kF16, 1, true>)
PENSTOCK_KERNEL(FlashChosen<KvCode::kF16, 2, false>)
PENSTOCK_KERNEL(FlashChosen<KvCode::kF16, 2, true>)
PENSTOCK_KERNEL(FlashChosen<KvCode::kBF16, 1, false>)
PENSTOCK_KERNEL(FlashChosen<KvCode::kBF16, 1, true>)
PENSTOCK_KERNEL(FlashChosen<KvCode::kBF16, 2, false>)
PENSTOCK_KERNEL(FlashChosen<KvCode::kBF16, 2, true>)

}  // namespace penstock::cuda
