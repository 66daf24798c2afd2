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

// Rotates a head of k, and stores it and its v. Grid::x = rows, Grid::y = kv heads.
struct StoreKv {
  static constexpr int kThreads = 64;
  Rows k, v;
  Rotation rotation;
  KvLayerOnDevice layer;
  int group;
  const BatchOnDevice* batch;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// A block has some query heads of one kv head for one token. It goes over what they see in chunks of kChunk tokens, which
// begin at the same places of the sequence whatever else is in the batch: scores by a thread per token, then sums of values
// by a thread per feature. Grid::x = rows, Grid::y = kv heads * tiles of heads.
struct Attend {
  static constexpr int kThreads = 128, kChunk = kThreads, kHeads = 4;
  Rows q, out;
  KvLayerOnDevice layer;
  int group;      // of the cache
  int n_queries;  // query heads of a kv head
  int window;
  bool chunked, both_ways;
  float scale, softcap;
  const float *sinks, *slopes;  // [query heads] or null
  const BatchOnDevice* batch;

  int tiles() const { return (n_queries + kHeads - 1) / kHeads; }
  int shared_bytes() const {
    return static_cast<int>(sizeof(float)) * kHeads * (layer.head_dim + layer.value_dim + kChunk + 4);
  }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
