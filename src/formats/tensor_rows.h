// Reads single rows of tensors, without decoding whole tensors.
#pragma once
#include "formats/weight_source.h"

namespace penstock {

// Returns one row, in F32, of a matrix with `cols` columns. Error: kCorruptFile unless the matrix
// exists, has the row and holds real numbers.
Result<std::vector<float>> read_row(const WeightSource& source, std::string_view name, int64_t row,
                                    int64_t cols);

}  // namespace penstock
