// Rows of hashed n-grams on the CPU.
#pragma once
#include "ops/cpu/recurrence.h"

namespace penstock {

// See Ops::embed_ngrams.
void cpu_embed_ngrams(const RecurrenceContext& context, const NgramParams& params, Tensor out);

}  // namespace penstock
