// Rotation of queries and keys, storing of keys and values, attention over the cache.
#pragma once
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/cache.h"
#include "ops/cuda/kernels/rows.h"

namespace penstock::cuda {

// RopeParams as kernels take them; without inv_freq nothing is rotated.
struct Rotation {
  const float* inv_freq = nullptr;  // [half]
  int half = 0;
  float scale = 1.0f;
  bool interleaved = false;
  int first = 0;
  // [half] or null: of sequences that the batch marks
  const float* long_inv_freq = nullptr;
};

// Rotates a head of a token of q, or of k. Grid::x = rows, Grid::y = heads of q and k.
struct RotateHeads {
  static constexpr int kThreads = 64;
  Rows q, k;
  int head_dim;
  Rotation rotation;
  const BatchOnDevice* batch;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// A warp rotates kHeads heads of q, or rotates and stores one of k, or stores one of v. Grid::x =
// rows, Grid::y = blocks().
struct StoreKv {
  static constexpr int kWarps = 4, kThreads = kWarps * 32, kHeads = 4, kBlocks = 8;
  Rows q;  // of no columns where nothing is rotated
  Rows k, v;
  Rotation rotation;
  KvLayerOnDevice layer;
  int group, query_warps;  // query_warps: of a row, warps_of_queries()
  const BatchOnDevice* batch;

  static int warps_of_queries(int n_heads) { return (n_heads + kHeads - 1) / kHeads; }
  int blocks() const {
    return (query_warps + (layer.values_at > 0 ? 2 : 1) * layer.n_kv_heads + kWarps - 1) / kWarps;
  }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// The step's own tokens, as the products gave them. k of no columns: keys and values are in the
// cache, as another layer stored them.
struct NewTokens {
  Rows k, v;
  Rotation rotation;
};

// What attention is asked for.
struct AttentionOnDevice {
  Rows q, out;
  KvLayerOnDevice layer;
  int group;      // of the cache
  int n_queries;  // query heads of a kv head
  int window;
  bool chunked, both_ways;
  float scale, softcap;
  const float *sinks, *slopes;  // [query heads] or null
  const BatchOnDevice* batch;
  // of the cache's blocks: their size is 1 << block_shift, or none: -1
  int block_shift;
};

// A block has some query heads of one kv head for one token. What they see is cut into pieces of
// kPiece tokens, which begin at the same places of the sequence whatever else is in the batch, and
// pieces into chunks of kChunk tokens: scores by a thread per token, then sums of values by a
// thread per feature. The pieces' sums are put together in their order. Grid::x = rows, Grid::y =
// kv heads * tiles of heads.
struct Attend : AttentionOnDevice {
  static constexpr int kThreads = 128, kChunk = kThreads, kPiece = BatchOnDevice::kPieceTokens,
                       kHeads = 4;

  int tiles() const { return (n_queries + kHeads - 1) / kHeads; }
  int shared_bytes() const {
    return static_cast<int>(sizeof(float)) * kHeads *
           (layer.head_dim + 2 * layer.value_dim + kChunk + 3);
  }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// The same in two: a block per piece of a token's sequence, as the batch lists them, leaves its
// sums; then they are put together. Bit for bit the same. Grid::x = pieces, or rows; Grid::y as
// above.
struct AttendPieces : AttentionOnDevice {
  static constexpr int kThreads = Attend::kThreads;
  // [piece][query head][value_dim + 2]: sums of values, the largest score, the sum of weights
  float* sums;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};
struct JoinPieces : AttentionOnDevice {
  static constexpr int kThreads = Attend::kThreads;
  const float* sums;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
