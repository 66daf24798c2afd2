// Operations that carry a state from token to token.
#pragma once
#include "base/arena.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "ops/cpu/kv_cache.h"
#include "ops/ops.h"

namespace penstock {

// Long runs of tokens are computed in chunks, and states in BF16 are widened before a step's tokens and rounded behind them.
// batch_invariant: token by token, and rounded behind each, so that nothing depends on where steps end.
struct RecurrenceContext {
  ThreadPool& pool;
  const KernelTable& kernels;
  const Batch& batch;
  CpuKvCache& cache;
  Arena& scratch;  // memory of one call, reused by the next
  bool batch_invariant = false;
};

// Ops::causal_conv over the batch's tokens. Every element is summed in the order of the taps, whatever the batch.
void cpu_causal_conv(const RecurrenceContext& context, Tensor x, const ConvParams& params, Tensor out);

// What Ops::gated_delta and Ops::state_space are of.
struct DeltaTensors {
  Tensor qkv, a, b, out;
};
void cpu_gated_delta(const RecurrenceContext& context, const DeltaTensors& tensors,
                     const DeltaParams& params);

// Ops::state_space: `a` is its scratch, `b` its dt.
void cpu_state_space(const RecurrenceContext& context, const DeltaTensors& tensors,
                     const StateSpaceParams& params);

}  // namespace penstock
