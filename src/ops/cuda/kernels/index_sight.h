// What an indexer's query sees.
#pragma once
#include "ops/cuda/kernels/select.h"
#include "ops/cuda/kernels/sight.h"

namespace penstock::cuda {

// The tokens of its sequence that a token sees: the first n_old, and of those behind them, of which
// `end` is one past the last, those whose bit is set; all of them without a mask.
struct IndexSight {
  int sequence, n_old, end, n_visible;
  uint64_t mask;

  PENSTOCK_DEVICE IndexSight(const BatchOnDevice& batch, int token) {
    sequence = batch.sequences[token], mask = batch.tree_masks[token];
    const int begin = batch.seq_offsets[sequence], n_new = batch.seq_offsets[sequence + 1] - begin;
    n_old = batch.seq_lens[sequence] - n_new;
    end = n_visible = n_old + token - begin + 1;
    if (mask == 0) return;
    end = n_old;
    for (uint64_t rest = mask; rest != 0; rest >>= 1) ++end;
    n_visible = n_old + bits_of(mask);
  }
  // Place in the sequence of the i-th token that it sees.
  PENSTOCK_DEVICE int place(int i) const {
    if (mask == 0 || i < n_old) return i;
    int at = n_old;
    uint64_t rest = mask;
    for (int left = i - n_old;; rest >>= 1, ++at) {
      if ((rest & 1) == 0) continue;
      if (left-- == 0) return at;
    }
  }
};

// The blocks of tokens among which a token selects, or the tokens themselves.
struct Candidates {
  int n, take;
  PENSTOCK_DEVICE Candidates(const IndexOnDevice& k, const IndexSight& sight) {
    n = sight.n_visible, take = k.top_k;
    if (k.pool > 1) n = sight.end / k.pool, take = k.top_k / k.pool;
    if (k.block > 0) n = (n + k.block - 1) / k.block, take = k.top_k / k.block;
  }
};

}  // namespace penstock::cuda
