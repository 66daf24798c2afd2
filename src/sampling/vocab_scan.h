// Passes over one row of logits [vocab_size]: written with vector types that compile to whatever the target
// has.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/types.h"

namespace penstock {

inline constexpr int kScanBlock = 64;  // logits per block maximum

// Largest logit per block of 64 into block_max [ceil(n / 64)]; returns the largest of all. NaN counts as
// -infinity.
float scan_block_max(std::span<const float> row, std::vector<float>& block_max);

// Lowest index among the largest; kNoToken when every value is -infinity or NaN, or one is +infinity.
TokenId scan_argmax(std::span<const float> row);

// Sum over the row of exp((row[i] - max) * inv_t), also in pieces of 1,024 into piece_sums when it is not
// null.
inline constexpr int kSumPiece = 1024;
double scan_sum_exp(std::span<const float> row, float max, float inv_t,
                    std::vector<double>* piece_sums = nullptr);

// out[i] = exp((row[i] - max) * inv_t), the same bits as scan_sum_exp adds.
void scan_exp(std::span<const float> row, float max, float inv_t, float* out);

// A histogram over (max - row[i]) * inv_t: bucket b holds [b, b + 1) / per_unit, the last all that is below.
struct ScanBuckets {
  float max, inv_t, per_unit;
  int count;
};
// Values below `bucket` become -infinity; the indices of those in it, ascending, go to the end of `inside`.
void scan_cut(std::span<float> row, const ScanBuckets& buckets, int bucket, std::vector<int>& inside);

// How many values are greater than x.
int scan_count_greater(std::span<const float> row, float x);

}  // namespace penstock
