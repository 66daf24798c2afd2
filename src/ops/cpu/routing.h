// Choice of a token's experts.
#pragma once
#include "ops/ops.h"

namespace penstock {

// out: [routing.n_active], best first. selection_bias: [n_experts] or null.
void choose_experts(const float* logits, int n_experts, const ExpertRouting& routing,
                    const float* selection_bias, ExpertChoice* out);

// Weighs experts that are given: chosen[i] is the i-th of routing.n_active. REQUIRES: the routing has
// one group and is no SparseMixer.
void weigh_experts(const float* logits, int n_experts, const ExpertRouting& routing,
                   const float* chosen, ExpertChoice* out);

}  // namespace penstock
