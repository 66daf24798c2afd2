#include "ops/cuda/kernels/attend_parts.h"
#include "ops/cuda/kernels/cached_pairs.h"
#include "ops/cuda/kernels/index_sight.h"

namespace penstock::cuda {
namespace {

// Whether the row selects, and has keys from key `first` on.
PENSTOCK_DEVICE bool has_keys(const IndexOnDevice& k, const IndexSight& sight, int first) {
  return sight.n_visible > k.most && first < sight.end / k.pool;
}

// A block's shared memory.
template <class K>
struct ScoreMemory {
  int row_bytes;
  std::byte *keys, *high, *low;  // of queries: the rounded numbers, and what that leaves
  float *key_scales, *factors;   // of keys, and of the heads' products

  PENSTOCK_DEVICE ScoreMemory(const Thread& t, int dim)
      : row_bytes(padded_row_bytes(dim)),
        keys(t.shared),
        high(keys + K::kKeys * row_bytes),
        low(high + K::kHeads * row_bytes),
        key_scales(reinterpret_cast<float*>(low + K::kHeads * row_bytes)),
        factors(key_scales + K::kKeys) {}
};

// Copies the keys from key `first` on: a warp has a row at a time, of 16-bit numbers with 16 bytes a
// lane.
template <class K, KvCode kCode>
PENSTOCK_DEVICE void bring_keys(const Thread& t, const K& k, int sequence, int first,
                                const ScoreMemory<K>& to) {
  const KvLayerOnDevice& layer = k.layer;
  const SequenceBlocks blocks(*k.batch, k.group, sequence, layer.block_size);
  const int n = k.batch->seq_lens[sequence] / k.pool, n_steps = (layer.head_dim + 15) / 16;
  const bool chunks = layer.code == kCode && layer.head_dim % 16 == 0;
  // Lanes of a row: a row of 128 features has 16 pieces of 16 bytes.
  const int per_row = chunks ? 2 * n_steps : 8 * n_steps;
  for (int i = t.index; i < K::kKeys * per_row; i += K::kThreads) {
    const int row = i / per_row, piece = i % per_row, key = first + row;
    const bool has = key < n;
    const std::byte* const from =
        has ? layer.key(blocks.slot_of(key * k.pool + k.pool - 1), 0) : nullptr;
    std::byte* const at = to.keys + row * to.row_bytes;
    if (chunks) {
      if (has) {
        t.copy_ahead(at + piece * 16, from + piece * 16);
      } else {
        *reinterpret_cast<Chunk*>(at + piece * 16) = Chunk{};
      }
      continue;
    }
    reinterpret_cast<uint32_t*>(at)[piece] =
        has && 2 * piece < layer.head_dim
            ? pair_of<kCode>(layer.code, from, 2 * piece, layer.head_dim)
            : 0u;
  }
  for (int row = t.index; row < K::kKeys; row += K::kThreads) {
    const int key = first + row;
    const bool has = layer.has_scales() && key < n;
    to.key_scales[row] =
        has ? *layer.key_scale(blocks.slot_of(key * k.pool + k.pool - 1), 0) : 1.0f;
  }
  t.end_copies();
}

// Splits the queries of kHeads heads of a row, a warp has a head at a time.
template <class K, KvCode kCode>
PENSTOCK_DEVICE void bring_queries(const Thread& t, const K& k, int row, int first_head,
                                   const ScoreMemory<K>& to) {
  const int dim = k.layer.head_dim;
  for (int h = t.warp(); h < K::kHeads; h += K::kWarps) {
    const int head = first_head + h;
    const bool has = head < k.n_heads;
    const float up = split_row<kCode, K::kMostDim / 2 / kWarp>(
        t, has ? k.q.row(row) + head * dim : nullptr, dim, to.high + h * to.row_bytes,
        to.low + h * to.row_bytes);
    if (t.lane() != 0) continue;
    const float weight = !has ? 0.0f : k.weights.cols > 0 ? k.weights.row(row)[head] : 1.0f;
    to.factors[h] = up * weight;
  }
}

// Products of a warp's 32 keys with up to 64 heads.
template <class K, KvCode kCode>
struct KeyProducts {
  static constexpr int kTiles = K::kHeads / 16, kColumns = 4;  // of 16 heads, of 8 keys
  float sums[kTiles][kColumns][4];

  PENSTOCK_DEVICE KeyProducts(const Thread& t, const ScoreMemory<K>& memory, int n_steps,
                              int n_tiles) {
    const int lane = t.lane();
    const std::byte* const keys = memory.keys +
                                  (t.warp() * 32 + lane / 16 * 8 + lane % 8) * memory.row_bytes +
                                  lane / 8 % 2 * 16;
    const int query_at = lane % 16 * memory.row_bytes + lane / 16 * 16;
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int n = 0; n < kColumns; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
    for (int step = 0; step < n_steps; ++step) {
      uint32_t b[2][4];
#pragma unroll
      for (int j = 0; j < 2; ++j)
        t.load_matrices(b[j], keys + j * 16 * memory.row_bytes + step * 32);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        if (m >= n_tiles) continue;
        const int at = m * 16 * memory.row_bytes + query_at + step * 32;
        multiply(t, memory.high + at, b, sums[m]);
        multiply(t, memory.low + at, b, sums[m]);
      }
    }
  }
  PENSTOCK_DEVICE static void multiply(const Thread& t, const std::byte* query,
                                       const uint32_t (&b)[2][4], float (&to)[kColumns][4]) {
    uint32_t a[4];
    t.load_matrices(a, query);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const uint32_t own[2] = {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]};
      Halves<kCode>::mma(t, to[n], a, own);
    }
  }
};

// Scores of a row: kHeads heads after the other.
template <class K, KvCode kCode>
PENSTOCK_DEVICE void score_row(const Thread& t, const K& k, const ScoreMemory<K>& memory, int row,
                               int first_key, int n_keys) {
  const int g = t.lane() / 4, q4 = t.lane() % 4, n_steps = (k.layer.head_dim + 15) / 16;
  float scores[4][2] = {};
  for (int head = 0; head < k.n_heads; head += K::kHeads) {
    t.sync();  // all warps have read the queries before
    bring_queries<K, kCode>(t, k, row, head, memory);
    t.sync();
    const int n_tiles = (least(K::kHeads, k.n_heads - head) + 15) / 16;
    const KeyProducts<K, kCode> products(t, memory, n_steps, n_tiles);
#pragma unroll
    for (int m = 0; m < products.kTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int own = 16 * m + g + 8 * (i >> 1);
        const float factor = memory.factors[own];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          if (k.block == 0) {
            scores[n][i & 1] = fmaf(fmaxf(products.sums[m][n][i], 0.0f), factor, scores[n][i & 1]);
            continue;
          }
          const int column = t.warp() * 32 + 8 * n + 2 * q4 + (i & 1), key = first_key + column;
          if (head + own < k.n_heads && key < n_keys)
            k.scores_of(row, head + own)[key] =
                products.sums[m][n][i] * factor * memory.key_scales[column];
        }
      }
    }
  }
  if (k.block > 0) return;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& score = scores[n][e];
#pragma unroll
      for (int mask = 4; mask < kWarp; mask *= 2) score += t.shuffle_xor(score, mask);
      const int column = t.warp() * 32 + 8 * n + 2 * q4 + e, key = first_key + column;
      if (g == 0 && key < n_keys) k.scores_of(row, 0)[key] = score * memory.key_scales[column];
    }
  }
}

}  // namespace

template <KvCode kCode>
PENSTOCK_BODY void ScoreKeys<kCode>::operator()(const Thread& t) const {
  using K = ScoreKeys<kCode>;
  const ScoreMemory<K> memory(t, layer.head_dim);
  const int first_key = t.y * kKeys, begin = first_row + t.x * tokens;
  const int past = least(least(begin + tokens, first_row + n_rows), batch->n_tokens);
  int sequence = -1;  // whose keys are there
  for (int row = begin; row < past; ++row) {
    const IndexSight sight(*batch, row);
    if (!has_keys(*this, sight, first_key)) continue;
    if (sight.sequence != sequence) {
      sequence = sight.sequence;
      t.sync();
      bring_keys<K, kCode>(t, *this, sequence, first_key, memory);
      t.template wait_for_copies<0>();
    }
    score_row<K, kCode>(t, *this, memory, row, first_key, sight.end / pool);
  }
}
PENSTOCK_KERNEL(ScoreKeys<KvCode::kF16>)
PENSTOCK_KERNEL(ScoreKeys<KvCode::kBF16>)

PENSTOCK_BODY void ScoreKeysOneByOne::operator()(const Thread& t) const {
  const int row = first_row + t.x, key = t.y * kKeys + t.index;
  if (row >= batch->n_tokens) return;
  const IndexSight sight(*batch, row);
  if (!has_keys(*this, sight, key)) return;
  const SequenceBlocks blocks(*batch, group, sight.sequence, layer.block_size);
  const KeyPlace place(layer, blocks.slot_of(key * pool + pool - 1), 0);
  const int dim = layer.head_dim;
  float sum = 0.0f;
  for (int h = 0; h < n_heads; ++h) {
    const float* const query = q.row(row) + h * dim;
    float product = 0.0f;
    for (int i = 0; i < dim; ++i)
      product = fmaf(query[i], number_at(layer.code, place.key, i), product);
    if (block > 0) {
      scores_of(row, h)[key] = product * place.scale;
    } else {
      sum = fmaf(fmaxf(product, 0.0f), weights.cols > 0 ? weights.row(row)[h] : 1.0f, sum);
    }
  }
  if (block == 0) scores_of(row, 0)[key] = sum * place.scale;
}
PENSTOCK_KERNEL(ScoreKeysOneByOne)

}  // namespace penstock::cuda
