// A second view of a checkpoint for drafting: its matrices in 4 bits, rounded to nearest as they are looked
// up. What is guessed with them is checked with the real ones.
#pragma once
#include <memory>

#include "base/result.h"
#include "formats/weight_source.h"

namespace penstock {

// `inner` outlives the result. Matrices that have few bits already, and those whose rows are no whole blocks,
// stay as they are; null when nothing is left to round, or when there is so much that it would take seconds.
// One thread at a time.
std::unique_ptr<WeightSource> make_four_bit_source(const WeightSource& inner);

}  // namespace penstock
