#pragma once
#include "base/thread_pool.h"
#include "ops/ops.h"

namespace penstock {

// See Ops::mix_streams.
void cpu_mix_streams(ThreadPool& pool, Tensor z, const StreamMixParams& params);

// See Ops::bound_rows and Ops::softmax_rows.
void cpu_bound_rows(ThreadPool& pool, Tensor x, float bound);
void cpu_softmax_rows(ThreadPool& pool, Tensor x);

}  // namespace penstock
