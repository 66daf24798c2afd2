// Operations that carry a state from token to token.
#pragma once
#include "base/thread_pool.h"
#include "ops/cpu/kv_cache.h"
#include "ops/ops.h"

namespace penstock {

// Ops::causal_conv over the batch's tokens. Every element is summed in the order of the taps, whatever the batch.
void cpu_causal_conv(ThreadPool& pool, const Batch& batch, Tensor x, const ConvParams& params,
                     CpuKvCache& cache, Tensor out);

}  // namespace penstock
