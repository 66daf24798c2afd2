// Validation of sampling parameters.
#pragma once
#include "base/result.h"
#include "penstock/sampling_params.h"

namespace penstock {

// Checks the parameters for a vocabulary. Error: kInvalidArgument, such as "temperature: expected a
// number >= 0, got -1".
Status validate(const SamplingParams& params, int vocab_size);
// Checks only the lists' lengths and elements, before work that is proportional to them. validate()
// includes these checks.
Status validate_lists(const SamplingParams& params, int vocab_size);

}  // namespace penstock
