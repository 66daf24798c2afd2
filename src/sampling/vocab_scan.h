// Passes over one row of logits [vocab_size], by the kernels of this machine (kernels/scan_kernels.h).
#pragma once
#include <span>
#include <vector>

#include "kernels/scan_kernels.h"
#include "penstock/types.h"

namespace penstock {

// Of the instruction set that PENSTOCK_ISA names, or the best one here.
const ScanKernels& scan_kernels();

// Largest logit per block of 64 into block_max [ceil(n / 64)]; returns the largest of all. NaN counts as
// -infinity.
float scan_block_max(std::span<const float> row, std::vector<float>& block_max);

// Lowest index among the largest; kNoToken when every value is -infinity or NaN, or one is +infinity.
TokenId scan_argmax(std::span<const float> row);

// Sum over the row of exp((row[i] - max) * inv_t), also in pieces of 1,024 into piece_sums when it is not
// null.
double scan_sum_exp(std::span<const float> row, float max, float inv_t,
                    std::vector<double>* piece_sums = nullptr);

// out[i] = exp((row[i] - max) * inv_t), the same bits as scan_sum_exp adds.
void scan_exp(std::span<const float> row, float max, float inv_t, float* out);

// How many values are greater than x.
int scan_count_greater(std::span<const float> row, float x);

}  // namespace penstock
