// The states of a sequence before and behind each of a step's tokens.
#pragma once
#include "ops/cuda/kernels/recurrence.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

// Tokens of a sequence, from row `first` on, and the blocks of its states. With one block, it holds
// the state before and then after them; with a block per token, block i receives the state after
// token i, and block 0 holds the state before all.
struct StateRows {
  int first, n;
  bool fresh, each;
  const int32_t* blocks;

  PENSTOCK_DEVICE StateRows(const BatchOnDevice& batch, const States& states, int sequence) {
    const KvOnDevice& kv = batch.kv[states.group];
    first = batch.seq_offsets[sequence], n = batch.seq_offsets[sequence + 1] - first;
    fresh = batch.seq_lens[sequence] == n;
    blocks = kv.block_tables + kv.table_offsets[sequence];
    each = kv.table_offsets[sequence + 1] - kv.table_offsets[sequence] > 1;
  }
  PENSTOCK_DEVICE int64_t before(const States& states, int i) const {
    return states.of_block(blocks[each && i > 0 ? i - 1 : 0]);
  }
  PENSTOCK_DEVICE int64_t after(const States& states, int i) const {
    return states.of_block(blocks[each ? i : 0]);
  }
  PENSTOCK_DEVICE bool starts(int i) const { return fresh && i == 0; }
};

PENSTOCK_DEVICE float widened(float x) { return x; }
PENSTOCK_DEVICE float widened(uint16_t bits) { return bf16_to_float(bits); }
PENSTOCK_DEVICE void put(float x, float& to) { to = x; }
PENSTOCK_DEVICE void put(float x, uint16_t& to) { to = float_to_bf16(x); }

}  // namespace penstock::cuda
