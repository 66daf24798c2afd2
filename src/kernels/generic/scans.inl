// Passes over one row of logits by the compiler's vector extensions. REQUIRES: kScanLanes, the
// number of floats of a register (4, 8 or 16), is defined.
#include <cstring>

namespace penstock {
namespace {

constexpr int kWide = 16, kParts = kWide / kScanLanes;
typedef float ScanVec __attribute__((vector_size(kScanLanes * sizeof(float))));
typedef int32_t ScanInts __attribute__((vector_size(kScanLanes * sizeof(int32_t))));
constexpr float kMinusInf = -__builtin_inff();

inline ScanVec scan_load(const float* p) {
  ScanVec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void scan_store(float* p, ScanVec v) { std::memcpy(p, &v, sizeof v); }

// exp(x) for x <= 0: 2^n * 2^f with |f| <= 1/2 and a polynomial for 2^f; relative error below 3e-7,
// 0 below about -87 and for NaN.
inline ScanVec exp_nonpositive(ScanVec x) {
  const ScanVec t = x * 1.44269504088896341f;
  const ScanVec clamped = t > -126.0f ? t : ScanVec{} - 126.0f;
  const ScanVec magic = ScanVec{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const ScanVec shifted = clamped + magic;
  const ScanVec f = clamped - (shifted - magic);
  ScanVec p = f * 1.54035304e-4f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  const ScanInts exponent = ((ScanInts)shifted - (ScanInts)magic) << 23;
  const ScanVec result = (ScanVec)((ScanInts)p + exponent);
  return t > -126.0f ? result : ScanVec{};
}

// A padded copy of the last n < 16 values.
struct ScanTail {
  float values[kWide];
  ScanTail(const float* p, int n) {
    for (int i = 0; i < kWide; ++i) values[i] = i < n ? p[i] : kMinusInf;
  }
};

struct WideSum {
  ScanVec parts[kParts] = {};
  void add(int part, ScanVec v) { parts[part] += v; }
  double total() const {
    double sum = 0;
    for (int part = 0; part < kParts; ++part) {
      for (int lane = 0; lane < kScanLanes; ++lane) sum += static_cast<double>(parts[part][lane]);
    }
    return sum;
  }
};

inline float max_of(const float* p, int n) {
  ScanVec best[kParts];
  for (ScanVec& b : best) b = ScanVec{} + kMinusInf;
  const auto add = [&](const float* from) {
    for (int part = 0; part < kParts; ++part) {
      const ScanVec v = scan_load(from + part * kScanLanes);
      best[part] = v > best[part] ? v : best[part];
    }
  };
  int i = 0;
  for (; i + kWide <= n; i += kWide) add(p + i);
  if (i < n) add(ScanTail(p + i, n - i).values);
  float result = kMinusInf;
  for (const ScanVec& b : best) {
    for (int lane = 0; lane < kScanLanes; ++lane) result = b[lane] > result ? b[lane] : result;
  }
  return result;
}

float scan_block_max_kernel(const float* row, int n, float* block_max) {
  float best = kMinusInf;
  for (int begin = 0; begin < n; begin += kScanBlock) {
    const float m = max_of(row + begin, n - begin < kScanBlock ? n - begin : kScanBlock);
    *block_max++ = m;
    best = m > best ? m : best;
  }
  return best;
}

double scan_sum_exp_kernel(const float* row, int n, ScanScale scale, double* piece_sums) {
  double total = 0;
  for (int begin = 0; begin < n; begin += kSumPiece) {
    const int end = n - begin < kSumPiece ? n : begin + kSumPiece;
    WideSum sum;
    const auto add = [&](const float* from) {
      for (int part = 0; part < kParts; ++part)
        sum.add(part,
                exp_nonpositive((scan_load(from + part * kScanLanes) - scale.max) * scale.inv_t));
    };
    int i = begin;
    for (; i + kWide <= end; i += kWide) add(row + i);
    if (i < end) add(ScanTail(row + i, end - i).values);
    const double piece = sum.total();
    if (piece_sums != nullptr) *piece_sums++ = piece;
    total += piece;
  }
  return total;
}

void scan_exp_kernel(const float* row, int n, ScanScale scale, float* out) {
  int i = 0;
  for (; i + kScanLanes <= n; i += kScanLanes)
    scan_store(out + i, exp_nonpositive((scan_load(row + i) - scale.max) * scale.inv_t));
  if (i == n) return;
  float lanes[kScanLanes];
  const ScanTail tail(row + i, n - i);
  scan_store(lanes, exp_nonpositive((scan_load(tail.values) - scale.max) * scale.inv_t));
  for (int lane = 0; lane < n - i; ++lane) out[i + lane] = lanes[lane];
}

double scan_split_kernel(const float* row, int n, ScanScale scale, ScanSplit& split) {
  const float low = split.low, high = split.high;
  int* const inside = split.inside;
  double* piece_sums = split.piece_sums;
  double total = 0;
  int count = 0;
  for (int begin = 0; begin < n; begin += kSumPiece) {
    const int end = n - begin < kSumPiece ? n : begin + kSumPiece;
    WideSum sum;
    const auto add = [&](const float* from, int at, int lanes) {
      ScanInts any{};
      ScanInts within[kParts];
      for (int part = 0; part < kParts; ++part) {
        const ScanVec x = (scan_load(from + part * kScanLanes) - scale.max) * scale.inv_t;
        const ScanInts above = x > high;
        within[part] = (x >= low) & (x <= high);
        any |= within[part];
        sum.add(part, (ScanVec)((ScanInts)exp_nonpositive(x) & above));
      }
      int64_t words[kScanLanes / 2];
      std::memcpy(words, &any, sizeof words);
      int64_t hit = 0;
      for (const int64_t word : words) hit |= word;
      if (hit == 0) return;
      for (int lane = 0; lane < lanes;
           ++lane) {  // branch-free: every lane is written, and overwritten unless it counts
        inside[count] = at + lane;
        count -= within[lane / kScanLanes][lane % kScanLanes];
      }
    };
    int i = begin;
    for (; i + kWide <= end; i += kWide) add(row + i, i, kWide);
    if (i < end) add(ScanTail(row + i, end - i).values, i, end - i);
    const double piece = sum.total();
    *piece_sums++ = piece;
    total += piece;
  }
  split.n_inside = count;
  return total;
}

// Applies `cut` to at most kScanBlock values.
inline float cut_block(float* row, int n, ScanScale scale, float low) {
  ScanVec best[kParts];
  for (ScanVec& b : best) b = ScanVec{} + kMinusInf;
  const auto cut = [&](const float* from, float* to) {
    for (int part = 0; part < kParts; ++part) {
      const ScanVec v = scan_load(from + part * kScanLanes);
      const ScanVec kept = (v - scale.max) * scale.inv_t >= low ? v : ScanVec{} + kMinusInf;
      best[part] = kept > best[part] ? kept : best[part];
      scan_store(to + part * kScanLanes, kept);
    }
  };
  int i = 0;
  for (; i + kWide <= n; i += kWide) cut(row + i, row + i);
  if (i < n) {
    ScanTail tail(row + i, n - i);
    cut(tail.values, tail.values);
    std::memcpy(row + i, tail.values, static_cast<size_t>(n - i) * sizeof(float));
  }
  float result = kMinusInf;
  for (const ScanVec& b : best) {
    for (int lane = 0; lane < kScanLanes; ++lane) result = b[lane] > result ? b[lane] : result;
  }
  return result;
}

float scan_cut_kernel(float* row, int n, ScanScale scale, float low, float* block_max) {
  float best = kMinusInf;
  for (int begin = 0; begin < n; begin += kScanBlock) {
    const float m =
        cut_block(row + begin, n - begin < kScanBlock ? n - begin : kScanBlock, scale, low);
    *block_max++ = m;
    best = m > best ? m : best;
  }
  return best;
}

int scan_count_greater_kernel(const float* row, int n, float x) {
  ScanInts counts{};
  int i = 0;
  for (; i + kScanLanes <= n; i += kScanLanes) counts -= (scan_load(row + i) > x);
  int total = 0;
  for (; i < n; ++i) total += row[i] > x;
  for (int lane = 0; lane < kScanLanes; ++lane) total += counts[lane];
  return total;
}

constexpr ScanKernels kScanKernels = {scan_block_max_kernel, scan_sum_exp_kernel,
                                      scan_exp_kernel,       scan_split_kernel,
                                      scan_cut_kernel,       scan_count_greater_kernel};

}  // namespace
}  // namespace penstock
