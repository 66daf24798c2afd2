// Runs of a step's tokens between states, for operations that carry a state from token to token.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "ops/batch.h"
#include "ops/cpu/kv_cache.h"

namespace penstock {

// Tokens of a sequence, `n` from row `first` of the step on, and the blocks with the state before
// and after them.
struct StateRun {
  int first, n;
  BlockId before, after;
  bool fresh;  // nothing is before them
};

// Calls f for runs of all of a sequence's tokens in the step: one, or one for each token where each
// has a state or if so wanted.
template <class F>
void for_each_run(const Batch& batch, const KvView& states, size_t sequence, bool by_token, F&& f) {
  const int first = batch.seq_offsets[sequence], n = batch.seq_offsets[sequence + 1] - first;
  const auto blocks = states.block_tables.subspan(
      static_cast<size_t>(states.table_offsets[sequence]),
      static_cast<size_t>(states.table_offsets[sequence + 1] - states.table_offsets[sequence]));
  const bool fresh = batch.seq_lens[sequence] == n;
  if (blocks.size() == 1 && !by_token) return f(StateRun{first, n, blocks[0], blocks[0], fresh});
  PENSTOCK_CHECK(blocks.size() == 1 || static_cast<int>(blocks.size()) == n);
  const auto block = [&](int i) { return blocks[blocks.size() > 1 ? static_cast<size_t>(i) : 0]; };
  for (int i = 0; i < n; ++i)
    f(StateRun{first + i, 1, block(i > 0 ? i - 1 : 0), block(i), fresh && i == 0});
}

// Returns [values] of the layer's state from `offset` on: their content before the run, in the
// block that holds the state after it. Zero bytes are zero in all types.
template <class T>
T* begin_state(CpuKvCache& cache, int layer, const StateRun& run, int64_t offset, int64_t values) {
  const auto of = [&](BlockId block) {
    return reinterpret_cast<T*>(cache.state(layer, block)) + offset;
  };
  T* const to = of(run.after);
  if (run.fresh) {
    std::fill_n(to, values, T{});
  } else if (run.before != run.after) {
    std::copy_n(of(run.before), values, to);
  }
  return to;
}

}  // namespace penstock
