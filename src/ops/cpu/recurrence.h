// Operations that carry a state from token to token.
#pragma once
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "ops/cpu/kv_cache.h"
#include "ops/ops.h"

namespace penstock {

// Ops::causal_conv over the batch's tokens. Every element is summed in the order of the taps, whatever the batch.
void cpu_causal_conv(ThreadPool& pool, const Batch& batch, Tensor x, const ConvParams& params,
                     CpuKvCache& cache, Tensor out);

// What Ops::gated_delta and Ops::state_space are of.
struct DeltaTensors {
  Tensor qkv, a, b, out;
};
struct RecurrenceContext {
  ThreadPool& pool;
  const KernelTable& kernels;
  const Batch& batch;
  CpuKvCache& cache;
};
void cpu_gated_delta(const RecurrenceContext& context, const DeltaTensors& tensors,
                     const DeltaParams& params);

// Ops::state_space: `a` is its scratch, `b` its dt.
void cpu_state_space(const RecurrenceContext& context, const DeltaTensors& tensors,
                     const StateSpaceParams& params);

}  // namespace penstock
