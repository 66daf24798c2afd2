// Rotation of queries and keys, storing of keys and values, and attention over the cache.
#pragma once
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/cache.h"
#include "ops/cuda/kernels/rows.h"

namespace penstock::cuda {

// RopeParams for kernels; inv_freq is null: no rotation.
struct Rotation {
  const float* inv_freq = nullptr;  // [half]
  int half = 0;
  float scale = 1.0f;
  bool interleaved = false;
  int first = 0;
  // [half] or null: for sequences that the batch marks (long_ropes)
  const float* long_inv_freq = nullptr;
  const float* axes = nullptr;  // [half] or null: RopeParams::axes
  int offset = 0;               // added to positions
};

// Rotates one head of a token's q or k. Grid::x = rows, Grid::y = heads of q and k.
struct RotateHeads {
  static constexpr int kThreads = 64;
  Rows q, k;
  int head_dim;
  Rotation rotation;
  const BatchOnDevice* batch;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// A warp rotates kHeads heads of q, or rotates and stores a head of k, or stores a head of v; of kI4
// in shared memory. Grid::x = rows, Grid::y = blocks().
struct StoreKv {
  static constexpr int kWarps = 4, kThreads = kWarps * 32, kHeads = 4, kBlocks = 8;
  Rows q;  // no columns: not rotated
  Rows k, v;
  Rotation rotation;
  KvLayerOnDevice layer;
  int group, query_warps;  // query_warps: warps_of_queries()
  const BatchOnDevice* batch;

  static int warps_of_queries(int n_heads) { return (n_heads + kHeads - 1) / kHeads; }
  int blocks() const {
    return (query_warps + (layer.values_at > 0 ? 2 : 1) * layer.n_kv_heads + kWarps - 1) / kWarps;
  }
  int shared_bytes() const {
    const int widest = layer.head_dim > layer.value_dim ? layer.head_dim : layer.value_dim;
    return layer.code == KvCode::kI4 ? kWarps * widest * static_cast<int>(sizeof(float)) : 0;
  }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// New keys and values of the step. k has no columns: the cache has them already, stored by another
// layer.
struct NewTokens {
  Rows k, v;
  Rotation rotation;
};

// RelativeTerms for kernels; columns is null: there are none.
struct TermsOnDevice {
  const float* columns = nullptr;  // [2 * reach + 1]
  int reach = 0, n_columns = 0;
  const float* table = nullptr;  // or null
  Rows of_query, of_key;         // or no columns

  // Returns the terms of a query head's score for a key at this distance from token t's row.
  PENSTOCK_DEVICE float sum(int t, int head, int distance) const {
    const int near = distance < -reach ? -reach : distance > reach ? reach : distance;
    const int at = head * n_columns + static_cast<int>(columns[near + reach]);
    float result = 0.0f;
    if (table != nullptr) result += table[at];
    if (of_query.cols > 0) result += of_query.row(t)[at];
    if (of_key.cols > 0) result += of_key.row(t + distance)[at];
    return result;
  }
};

// Parameters of attention.
struct AttentionOnDevice {
  Rows q, out;
  KvLayerOnDevice layer;
  int group;      // of the cache
  int n_queries;  // per kv head
  int window;
  bool chunked, both_ways, sees_parts;
  float scale, softcap;
  const float *sinks, *slopes;  // [query heads] or null
  TermsOnDevice terms;          // only Attend and AttendPieces add them
  const BatchOnDevice* batch;
  // log2 of the cache's block size; -1: the size is no power of two
  int block_shift;
};

// A block computes some query heads of one kv head for one token. The visible tokens are divided
// into pieces of kPiece tokens, at the same positions of the sequence in any batch, and pieces
// into chunks of kChunk tokens: a thread per token computes scores, then a thread per feature sums
// the values. Sums of pieces are joined in order. Grid::x = rows, Grid::y = kv heads * tiles of
// heads.
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

// Split attention: Attend in two kernels with the same bits. One block per piece of a token's
// sequence, as the batch lists them, writes partial sums; then they are joined. Grid::x = pieces,
// or rows; Grid::y as in Attend.
struct AttendPieces : AttentionOnDevice {
  static constexpr int kThreads = Attend::kThreads;
  // [piece][query head][value_dim + 2]: sums of values, largest score, sum of weights
  float* sums;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};
struct JoinPieces : AttentionOnDevice {
  static constexpr int kThreads = Attend::kThreads;
  const float* sums;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
