// Why nothing is left to choose: which parameters contradict each other. For messages; not fast.
#pragma once
#include <string>

#include "sampling/sampler.h"

namespace penstock {

// What excludes every token that could come next, by the names of the parameters, and the tokens that the grammar allows
// if there is one. "" when some token is left, or when it is not the parameters' doing.
std::string why_none_is_left(const SampleContext& context);

}  // namespace penstock
