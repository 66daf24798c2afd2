// Passes over one row of logits. All instruction sets give the same bits: sums have 16 partial sums
// whatever the width of registers, and multiply-adds are not fused.
#pragma once
#include <cstdint>

namespace penstock {

inline constexpr int kScanBlock = 64;   // logits per block maximum
inline constexpr int kSumPiece = 1024;  // weights that are summed in floats

// Conversion of a row to weights: x = (row[i] - max) * inv_t, weight = exp(x). max: the largest
// value of the row.
struct ScanScale {
  float max, inv_t;
};

struct ScanSplit {
  float low, high;  // bounds of x
  // [n]: indices of the values with low <= x <= high, ascending; NaN is neither
  int* inside;
  int n_inside;  // their number
  // [ceil(n / kSumPiece)]: of every piece, the weights with x > high
  double* piece_sums;
};

struct ScanKernels {
  // Writes the largest of each kScanBlock values to block_max [ceil(n / kScanBlock)] and returns
  // the largest of all. NaN counts as -infinity.
  float (*block_max)(const float* row, int n, float* block_max);
  // Returns the sum of the weights, and writes that of every kSumPiece weights to piece_sums
  // [ceil(n / kSumPiece)] unless it is null.
  double (*sum_exp)(const float* row, int n, ScanScale scale, double* piece_sums);
  // out[i] = weight of row[i], with the bits that sum_exp adds.
  void (*exp)(const float* row, int n, ScanScale scale, float* out);
  // Classifies the row's values by two bounds. Returns the sum of the weights above both.
  double (*split)(const float* row, int n, ScanScale scale, ScanSplit& split);
  // Sets values with x < low, and NaN, to -infinity; then does the same as block_max.
  float (*cut)(float* row, int n, ScanScale scale, float low, float* block_max);
  // Returns the number of values greater than x.
  int (*count_greater)(const float* row, int n, float x);
};

}  // namespace penstock
