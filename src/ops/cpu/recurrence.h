// Operations with a recurrent state.
#pragma once
#include "base/arena.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "ops/cpu/kv_cache.h"
#include "ops/ops.h"

namespace penstock {

// Context of recurrent operations. Long runs of tokens are computed in chunks. States in BF16 are
// widened before a step's tokens and rounded after them; with batch_invariant, tokens are computed
// one by one and the state is rounded after each, so that results do not depend on where steps end.
struct RecurrenceContext {
  ThreadPool& pool;
  const KernelTable& kernels;
  const Batch& batch;
  CpuKvCache& cache;
  Arena& scratch;  // memory of one call, reused by the next
  bool batch_invariant = false;
};

// See Ops::causal_conv. Every element is summed in the order of the taps, independent of the batch.
void cpu_causal_conv(const RecurrenceContext& context, Tensor x, const ConvParams& params,
                     Tensor out);

// See Ops::pool_keys.
void cpu_pool_keys(const RecurrenceContext& context, Tensor keys, Tensor scores,
                   const PoolParams& params, Tensor out);

// Tensors of Ops::gated_delta and Ops::state_space.
struct DeltaTensors {
  Tensor qkv, a, b, out;
};
void cpu_gated_delta(const RecurrenceContext& context, const DeltaTensors& tensors,
                     const DeltaParams& params);

// See Ops::wkv.
void cpu_wkv(const RecurrenceContext& context, const WkvTensors& tensors, const WkvParams& params);

// See Ops::state_space, whose scratch is `a` and dt is `b`.
void cpu_state_space(const RecurrenceContext& context, const DeltaTensors& tensors,
                     const StateSpaceParams& params);

}  // namespace penstock
