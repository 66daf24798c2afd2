#pragma once
#include "base/thread_pool.h"
#include "ops/ops.h"

namespace penstock {

// See Ops::mix_streams.
void cpu_mix_streams(ThreadPool& pool, Tensor z, const StreamMixParams& params);

}  // namespace penstock
