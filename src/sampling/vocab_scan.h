// Passes over one row of logits [vocab_size], by the kernels of this machine
// (kernels/scan_kernels.h).
#pragma once
#include <span>
#include <vector>

#include "kernels/scan_kernels.h"
#include "penstock/types.h"

namespace penstock {

// The kernels of the instruction set that PENSTOCK_ISA names, or of the best one that this machine
// has.
const ScanKernels& scan_kernels();

// Writes the greatest logit of each block of 64 into block_max [ceil(n / 64)]; returns the greatest
// of all. NaN counts as -infinity.
float scan_block_max(std::span<const float> row, std::vector<float>& block_max);

// Returns the index of the greatest value, the lowest among equals; kNoToken when every value is
// -infinity or NaN, or one is +infinity.
TokenId scan_argmax(std::span<const float> row);

// Returns the sum over the row of exp((row[i] - max) * inv_t); writes the sums of pieces of 1,024
// values into piece_sums when it is not null.
double scan_sum_exp(std::span<const float> row, float max, float inv_t,
                    std::vector<double>* piece_sums = nullptr);

// out[i] = exp((row[i] - max) * inv_t), the same bits as scan_sum_exp adds.
void scan_exp(std::span<const float> row, float max, float inv_t, float* out);

// Returns the number of values greater than x.
int scan_count_greater(std::span<const float> row, float x);

}  // namespace penstock
