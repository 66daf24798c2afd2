// Weights whose matrices are re-encoded in memory by rounding to nearest, for comparisons of
// encodings.
#pragma once
#include <memory>
#include <string_view>

#include "base/result.h"
#include "formats/weight_source.h"

namespace penstock {

// Returns the source with its matrices in another encoding. type: name of a file type ("bf16",
// "q4_k_m"). 16-bit matrices are unchanged when the type has 16 bits. Errors: kInvalidArgument
// (unknown name).
Result<std::unique_ptr<WeightSource>> recode(std::unique_ptr<WeightSource> source,
                                             std::string_view type);

}  // namespace penstock
