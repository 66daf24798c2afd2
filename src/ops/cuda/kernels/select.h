// Selection of tokens for sparse attention (Ops::select): scores of all keys that a token sees, into
// memory, then the highest of them.
//
// The bits of a score depend on the token and the key alone: neither on the batch, nor on how a
// prompt is cut. So do selections, of equal scores the lower place.
#pragma once
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/cache.h"
#include "ops/cuda/kernels/rows.h"

namespace penstock::cuda {

// Rows [first_row, first_row + n_rows) of a step, the keys of their indexer, and their scores. Rows of
// tokens that see no more than `most` tokens have none.
struct IndexOnDevice {
  Rows q, weights;  // weights without columns: ones
  KvLayerOnDevice layer;
  int group;  // of the cache
  const BatchOnDevice* batch;
  // see SelectParams; pool: tokens of a key, the last of which has it
  int n_heads, top_k, pool, block, n_local;
  bool entries;
  int most, n_selections;
  int first_row, n_rows;
  float* scores;   // [n_rows][n_selections][stride]
  int64_t stride;  // at least the number of keys of any sequence

  PENSTOCK_DEVICE float* scores_of(int row, int selection) const {
    return scores + (static_cast<int64_t>(row - first_row) * n_selections + selection) * stride;
  }
};

// Scores of 16-bit and 8-bit keys by mma. A block has kKeys keys, which it copies to shared memory
// once for the neighbouring rows of a sequence, and `tokens` rows, one after the other. A warp has 32
// keys. Queries are split into two numbers of 16 bits, times a power of two for each head; heads are
// rows of the products, keys are columns. Grid::x = rows / tokens, Grid::y = keys / kKeys.
// kCode: kF16 also multiplies 8-bit keys. REQUIRES: suits().
template <KvCode kCode>
struct ScoreKeys : IndexOnDevice {
  static constexpr int kWarps = 8, kThreads = kWarps * 32, kKeys = kWarps * 32, kHeads = 64,
                       kMostDim = 128;
  int tokens;

  static bool suits(const KvLayerOnDevice& layer) {
    return layer.code != KvCode::kF32 && layer.head_dim <= kMostDim;
  }
  static int shared_bytes(int dim) {
    return ((dim + 15) / 16 * 32 + 16) * (kKeys + 2 * kHeads) + 4 * (kKeys + kHeads);
  }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Scores of all types of keys: a thread per key, in F32. Grid::x = rows, Grid::y = keys / kKeys.
struct ScoreKeysOneByOne : IndexOnDevice {
  static constexpr int kThreads = 128, kKeys = kThreads;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Selects by a radix sort that follows the lowest selected score only: three counts of digits, then
// one pass that writes places in their order. A block has a row and one of its selections; up to
// `kept` scores stay in shared memory. Grid::x = rows, Grid::y = n_selections.
template <int Threads>
struct SelectHighest : IndexOnDevice {
  static constexpr int kThreads = Threads, kWarps = Threads / 32, kDigits = 1 << 11;
  int32_t* out;  // [row][out_stride]
  int64_t out_stride;
  int kept;

  static constexpr int kScratch = 4 * (kDigits + 2 * kWarps + 4);
  int shared_bytes() const { return kScratch + 4 * kept; }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
