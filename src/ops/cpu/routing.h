// Choice of a token's experts.
#pragma once
#include "ops/ops.h"

namespace penstock {

struct ExpertChoice {
  int expert;
  float weight;
};

// out: [routing.n_active], best first. selection_bias: [n_experts] or null.
void choose_experts(const float* logits, int n_experts, const ExpertRouting& routing,
                    const float* selection_bias, ExpertChoice* out);

}  // namespace penstock
