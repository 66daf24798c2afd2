// Passes over one row of logits. Every instruction set gives the same bits: sums go over 16 lanes whatever
// the registers hold, and nothing is contracted.
#pragma once
#include <cstdint>

namespace penstock {

inline constexpr int kScanBlock = 64;   // logits per block maximum
inline constexpr int kSumPiece = 1024;  // weights that are added in floats

// How a row becomes weights: x = (row[i] - max) * inv_t, weight = exp(x). max: the row's largest value.
struct ScanScale {
  float max, inv_t;
};

struct ScanSplit {
  float low, high;     // bounds of x
  int* inside;         // [n]: indices of the values with low <= x <= high, ascending; NaN is neither
  int n_inside;        // their number
  double* piece_sums;  // [ceil(n / kSumPiece)]: of every piece, the weights with x > high
};

struct ScanKernels {
  // The largest of each kScanBlock values into block_max [ceil(n / kScanBlock)]; NaN counts as -infinity.
  // Returns the largest of all.
  float (*block_max)(const float* row, int n, float* block_max);
  // The weights' sum, and that of every kSumPiece of them into piece_sums [ceil(n / kSumPiece)] unless it is
  // null.
  double (*sum_exp)(const float* row, int n, ScanScale scale, double* piece_sums);
  // out[i] = weight of row[i], the bits that sum_exp adds.
  void (*exp)(const float* row, int n, ScanScale scale, float* out);
  // Sorts the row's values by two bounds. Returns the sum of the weights above both.
  double (*split)(const float* row, int n, ScanScale scale, ScanSplit& split);
  // Values with x < low, and NaN, become -infinity; then as block_max.
  float (*cut)(float* row, int n, ScanScale scale, float low, float* block_max);
  // How many values are greater than x.
  int (*count_greater)(const float* row, int n, float x);
};

}  // namespace penstock
