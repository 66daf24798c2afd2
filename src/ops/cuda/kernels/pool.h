// Keys of blocks of tokens (Ops::pool_keys), and the last tokens of sequences, of which rows of n-grams
// are looked up (Ops::embed_ngrams). Both read states of earlier steps; kernels of their own write the
// states behind a step.
#pragma once
#include "ops/cuda/kernels/recurrence.h"

namespace penstock::cuda {

// The tokens before a step: their keys, then their scores, [taps - 1][width] each. Token j of a sequence
// is at row j % (taps - 1), so that a step writes only its own tokens. BF16 states are rounded: a
// token's values are those of the state, rounded, for all tokens behind it.
struct PooledTokens {
  Rows keys, scores;
  int taps;  // PoolParams::taps()
  States states;
  const BatchOnDevice* batch;
};

// Grid::x = rows, Grid::y = groups of kThreads features.
struct PoolKeys : PooledTokens {
  static constexpr int kThreads = 128;
  Rows out;
  const float* places;  // [pool][keys.cols]
  int pool;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Grid::x = maximum number of sequences, Grid::y = groups of kThreads columns of keys.
struct KeepPooled : PooledTokens {
  static constexpr int kThreads = 128;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// The tokens of a row: its own, then the n - 1 before it. A state has them from the oldest on, in
// parts of 8 bits; zeros are the end token.
struct RecentTokens {
  static constexpr int kThreads = 32, kParts = 3, kPartBits = 8;
  int n;
  int32_t end_token;
  int32_t* recent;  // [rows][n], in memory of the host
  States states;
  const BatchOnDevice* batch;
};

// Grid::x = rows / kThreads.
struct ListRecent : RecentTokens {
  int rows;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Grid::x = maximum number of sequences.
struct KeepRecent : RecentTokens {
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Lists the tokens of the batch, drawn ones too, in memory of the host. Grid::x = rows /
// kThreads.
struct ListTokens {
  static constexpr int kThreads = 64;
  int32_t* tokens;
  const BatchOnDevice* batch;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
