// Explains why no token is possible: which parameters contradict each other. For error messages;
// not fast.
#pragma once
#include <string>

#include "sampling/sampler.h"

namespace penstock {

// Returns the names of the parameters that together exclude every next token, and the tokens that
// the grammar allows if there is one. "" when some token is possible, or when the parameters are
// not the reason.
std::string why_none_is_left(const SampleContext& context);

}  // namespace penstock
