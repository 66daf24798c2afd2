// Whether sampling parameters make sense for a vocabulary.
#pragma once
#include "base/result.h"
#include "penstock/sampling_params.h"

namespace penstock {

// Error: kInvalidArgument, "temperature: expected a number >= 0, got -1".
Status validate(const SamplingParams& params, int vocab_size);

}  // namespace penstock
