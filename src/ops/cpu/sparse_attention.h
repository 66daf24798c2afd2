// Sparse attention of the CPU backend: an indexer scores the context of every token, the tokens
// with the highest scores are selected, and attention reads these only. A token's selection and
// result depend on no other token of the step.
#pragma once
#include "ops/cpu/attention.h"

namespace penstock {

// See Ops::select.
void cpu_select(const AttentionContext& context, Tensor q, Tensor weights, const Batch& batch,
                const CpuKvCache& cache, const SelectParams& params, Tensor out);

// See Ops::attend, for the tokens that do not see all (tokens_that_see_all()), or for all tokens if the
// layer has entries.
void cpu_attend_selected(const AttentionContext& context, Tensor q, const Batch& batch,
                         const CpuKvCache& cache, const AttentionParams& params, Tensor out);

// Writes the indices of the k highest of n scores to `out`, ascending; of equal scores the lower
// index is taken. 0 and -0 are equal. REQUIRES: 0 < k <= n.
void select_highest(const float* scores, int n, int k, int32_t* out);

}  // namespace penstock
