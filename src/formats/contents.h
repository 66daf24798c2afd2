// A fingerprint of a model's tensors.
#pragma once
#include <string>

#include "formats/weight_source.h"

namespace penstock {

// Returns a text of the names, sizes and checksums of all tensors, which is the same for a copy of the files.
// Reads all tensors.
std::string contents_of(const WeightSource& source);

}  // namespace penstock
