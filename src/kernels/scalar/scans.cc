#include "kernels/scalar/tables.h"
#include "kernels/scan_kernels.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace penstock {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int kLanes = 16;

float x_of(float value, ScanScale scale) { return (value - scale.max) * scale.inv_t; }

// exp(x) for x <= 0: 2^n * 2^f with |f| <= 1/2 and a polynomial for 2^f; relative error below 3e-7,
// 0 below about -87 and for NaN.
float exp_nonpositive(float x) {
  const float t = x * 1.44269504088896341f;
  if (!(t > -126.0f)) return 0;
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = t + magic;
  const float f = t - (shifted - magic);
  float p = f * 1.54035304e-4f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  int32_t bits, n;
  std::memcpy(&bits, &p, sizeof bits);
  std::memcpy(&n, &shifted, sizeof n);
  bits += static_cast<int32_t>(static_cast<uint32_t>(n - 0x4B400000) << 23);
  std::memcpy(&p, &bits, sizeof p);
  return p;
}

// Returns the sum of weight(i) for i in [begin, end): lanes are summed in floats, then added.
template <class F>
double lane_sum(int begin, int end, F&& weight) {
  float lanes[kLanes] = {};
  for (int i = begin; i < end; ++i) lanes[(i - begin) % kLanes] += weight(i);
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

float block_max(const float* row, int n, float* block_max) {
  float best = kMinusInf;
  for (int begin = 0; begin < n; begin += kScanBlock) {
    float m = kMinusInf;
    for (int i = begin; i < n && i < begin + kScanBlock; ++i) m = row[i] > m ? row[i] : m;
    *block_max++ = m;
    best = m > best ? m : best;
  }
  return best;
}

double sum_exp(const float* row, int n, ScanScale scale, double* piece_sums) {
  double total = 0;
  for (int begin = 0; begin < n; begin += kSumPiece) {
    const int end = n - begin < kSumPiece ? n : begin + kSumPiece;
    const double piece =
        lane_sum(begin, end, [&](int i) { return exp_nonpositive(x_of(row[i], scale)); });
    if (piece_sums != nullptr) *piece_sums++ = piece;
    total += piece;
  }
  return total;
}

void exp_row(const float* row, int n, ScanScale scale, float* out) {
  for (int i = 0; i < n; ++i) out[i] = exp_nonpositive(x_of(row[i], scale));
}

double split(const float* row, int n, ScanScale scale, ScanSplit& split) {
  double total = 0;
  split.n_inside = 0;
  for (int begin = 0; begin < n; begin += kSumPiece) {
    const int end = n - begin < kSumPiece ? n : begin + kSumPiece;
    const double piece = lane_sum(begin, end, [&](int i) {
      const float x = x_of(row[i], scale);
      if (x >= split.low && x <= split.high) split.inside[split.n_inside++] = i;
      return x > split.high ? exp_nonpositive(x) : 0.0f;
    });
    split.piece_sums[begin / kSumPiece] = piece;
    total += piece;
  }
  return total;
}

float cut(float* row, int n, ScanScale scale, float low, float* maxima) {
  for (int i = 0; i < n; ++i) row[i] = x_of(row[i], scale) >= low ? row[i] : kMinusInf;
  return block_max(row, n, maxima);
}

int count_greater(const float* row, int n, float x) {
  int count = 0;
  for (int i = 0; i < n; ++i) count += row[i] > x;
  return count;
}

}  // namespace

constinit const ScanKernels kScalarScanKernels = {block_max, sum_exp, exp_row,
                                                  split,     cut,     count_greater};

}  // namespace penstock
