// A model with its matrices in another encoding, made in memory by rounding to nearest: to compare what
// encodings cost, not to keep.
#pragma once
#include <memory>
#include <string_view>

#include "base/result.h"
#include "formats/weight_source.h"

namespace penstock {

// `type`: a file type's name ("bf16", "q4_k_m"). Matrices that are in 16 bits already stay as they are when 16
// are wanted. Errors: kInvalidArgument for an unknown name.
Result<std::unique_ptr<WeightSource>> recode(std::unique_ptr<WeightSource> source, std::string_view type);

}  // namespace penstock
