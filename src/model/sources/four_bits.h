// A view of a checkpoint for self-drafting: matrices are rounded to 4 bits when they are looked up.
// The draft is verified with the original matrices.
#pragma once
#include <memory>

#include "base/result.h"
#include "formats/weight_source.h"

namespace penstock {

// Returns a view of `inner`, which must outlive it. Matrices with few bits already, and those whose
// rows are no whole blocks, are unchanged. Null if nothing is left to round, or if rounding would
// take seconds. One thread at a time.
std::unique_ptr<WeightSource> make_four_bit_source(const WeightSource& inner);

}  // namespace penstock
