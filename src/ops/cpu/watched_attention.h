// Weights of attention to an encoder's rows, for those who watch (Batch::watched).
#pragma once
#include "ops/cpu/attention.h"

namespace penstock {

// Computes the weights of the watched heads of this layer, and gives them to the batch's watches.
void cpu_watch_encoded(const AttentionContext& context, Tensor q, const Batch& batch,
                       const EncodedParams& params, const CpuKvCache& cache);

}  // namespace penstock
