// What the tensors of a model hold, as a text.
#pragma once
#include <string>

#include "formats/weight_source.h"

namespace penstock {

// Returns names, sizes and checksums of all tensors: that of a copy of the files is the same. Reads all
// of them.
std::string contents_of(const WeightSource& source);

}  // namespace penstock
