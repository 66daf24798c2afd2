// Single rows of tensors, for which the whole would be too much.
#pragma once
#include "formats/weight_source.h"

namespace penstock {

// One row of a matrix of so many columns. Error: kCorruptFile unless the matrix is there, has the row and holds real numbers.
Result<std::vector<float>> read_row(const WeightSource& source, std::string_view name, int64_t row,
                                    int64_t cols);

}  // namespace penstock
