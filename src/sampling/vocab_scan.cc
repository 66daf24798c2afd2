#include "sampling/vocab_scan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace penstock {
namespace {

constexpr int kLanes = 4;  // what every 64-bit target has; wider registers would change the ABI
typedef float Vec __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t IntVec __attribute__((vector_size(kLanes * sizeof(int32_t))));
constexpr float kNegInf = -std::numeric_limits<float>::infinity();

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// exp(x) for x <= 0: 2^n * 2^f with |f| <= 1/2 and a polynomial for 2^f; relative error below 3e-7, 0 below
// about -87.
inline Vec exp_nonpositive(Vec x) {
  const Vec t = x * 1.44269504088896341f;
  const Vec clamped = t > -126.0f ? t : Vec{} - 126.0f;  // also takes NaN to the bottom
  const Vec magic = Vec{} + 12582912.0f;                 // 1.5 * 2^23: adding it rounds to an integer
  const Vec shifted = clamped + magic;
  const Vec f = clamped - (shifted - magic);
  Vec p = f * 1.54035304e-4f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  const IntVec exponent = ((IntVec)shifted - (IntVec)magic) << 23;
  const Vec result = (Vec)((IntVec)p + exponent);
  return t > -126.0f ? result : Vec{};
}

inline Vec load_partial(const float* p, int n, float fill) {
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = i < n ? p[i] : fill;
  return load(lanes);
}

inline float max_of(const float* p, int n) {
  Vec best = Vec{} + kNegInf;
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec v = load(p + i);
    best = v > best ? v : best;
  }
  if (i < n) {
    const Vec v = load_partial(p + i, n - i, kNegInf);
    best = v > best ? v : best;
  }
  float result = best[0];
  for (int lane = 1; lane < kLanes; ++lane) result = std::max(result, best[lane]);
  return result;
}

}  // namespace

float scan_block_max(std::span<const float> row, std::vector<float>& block_max) {
  const int n = static_cast<int>(row.size());
  block_max.clear();
  float best = kNegInf;
  for (int begin = 0; begin < n; begin += kScanBlock) {
    const float m = max_of(row.data() + begin, std::min(kScanBlock, n - begin));
    block_max.push_back(m);
    best = std::max(best, m);
  }
  return best;
}

TokenId scan_argmax(std::span<const float> row) {
  const int n = static_cast<int>(row.size());
  float best = kNegInf;
  int best_block = -1;
  for (int begin = 0; begin < n; begin += kScanBlock) {
    const float m = max_of(row.data() + begin, std::min(kScanBlock, n - begin));
    if (m > best) {
      best = m;
      best_block = begin;
    }
  }
  if (best_block < 0 || best == std::numeric_limits<float>::infinity()) return kNoToken;
  int i = best_block;
  while (row[i] != best) ++i;
  return i;
}

double scan_sum_exp(std::span<const float> row, float max, float inv_t, std::vector<double>* piece_sums) {
  const int n = static_cast<int>(row.size());
  if (piece_sums != nullptr) piece_sums->clear();
  double total = 0;
  for (int begin = 0; begin < n; begin += kSumPiece) {
    const int end = std::min(begin + kSumPiece, n);
    Vec sum0{}, sum1{};
    int i = begin;
    for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
      sum0 += exp_nonpositive((load(row.data() + i) - max) * inv_t);
      sum1 += exp_nonpositive((load(row.data() + i + kLanes) - max) * inv_t);
    }
    for (; i < end; i += kLanes) {
      sum0 +=
          exp_nonpositive((load_partial(row.data() + i, std::min(kLanes, end - i), kNegInf) - max) * inv_t);
    }
    double piece = 0;
    for (int lane = 0; lane < kLanes; ++lane) piece += double{sum0[lane]} + double{sum1[lane]};
    if (piece_sums != nullptr) piece_sums->push_back(piece);
    total += piece;
  }
  return total;
}

void scan_exp(std::span<const float> row, float max, float inv_t, float* out) {
  const int n = static_cast<int>(row.size());
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec v = exp_nonpositive((load(row.data() + i) - max) * inv_t);
    std::memcpy(out + i, &v, sizeof v);
  }
  if (i == n) return;
  const Vec v = exp_nonpositive((load_partial(row.data() + i, n - i, kNegInf) - max) * inv_t);
  for (int lane = 0; lane < n - i; ++lane) out[i + lane] = v[lane];
}

void scan_cut(std::span<float> row, const ScanBuckets& buckets, int bucket, std::vector<int>& inside) {
  const int n = static_cast<int>(row.size());
  const auto low = static_cast<float>(bucket), high = static_cast<float>(bucket + 1);
  const auto last = static_cast<float>(buckets.count - 1);
  for (int i = 0; i < n; i += kLanes) {
    const int lanes = std::min(kLanes, n - i);
    const Vec v = lanes == kLanes ? load(row.data() + i) : load_partial(row.data() + i, lanes, kNegInf);
    const Vec depth = (buckets.max - v) * buckets.inv_t * buckets.per_unit;
    const Vec clamped = depth < last ? depth : Vec{} + last;
    const IntVec kept = clamped < high;
    const IntVec at = kept & (clamped >= low);
    const Vec result = kept ? v : Vec{} + kNegInf;
    std::memcpy(row.data() + i, &result, lanes * sizeof(float));
    const IntVec pair = at | __builtin_shuffle(at, IntVec{2, 3, 0, 1});
    if ((pair[0] | pair[1]) == 0) continue;
    for (int lane = 0; lane < lanes; ++lane) {
      if (at[lane] != 0 && row[i + lane] > kNegInf) inside.push_back(i + lane);
    }
  }
}

int scan_count_greater(std::span<const float> row, float x) {
  const int n = static_cast<int>(row.size());
  IntVec counts{};
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) counts -= (load(row.data() + i) > x);
  int total = 0;
  for (; i < n; ++i) total += row[i] > x;
  for (int lane = 0; lane < kLanes; ++lane) total += counts[lane];
  return total;
}

}  // namespace penstock
