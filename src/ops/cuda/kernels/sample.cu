#include "ops/cuda/kernels/sample.h"

#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {
namespace {

constexpr float kMinusInf = -INFINITY;

// Nothing is contracted to an fma, as on the host.
#if defined(__CUDACC__)
PENSTOCK_DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
PENSTOCK_DEVICE float plus(float a, float b) { return __fadd_rn(a, b); }
PENSTOCK_DEVICE double times(double a, double b) { return __dmul_rn(a, b); }
PENSTOCK_DEVICE double minus(double a, double b) { return __dsub_rn(a, b); }
#else
inline float mul(float a, float b) { return a * b; }
inline float plus(float a, float b) { return a + b; }
inline double times(double a, double b) { return a * b; }
inline double minus(double a, double b) { return a - b; }
#endif

// exp(x) for x <= 0, as the host's scans have it: 0 below about -87 and for what is no number.
PENSTOCK_DEVICE float exp_nonpositive(float x) {
  const float t = mul(x, 1.44269504088896341f);
  const float clamped = t > -126.0f ? t : -126.0f;
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = plus(clamped, kMagic);
  const float f = plus(clamped, -plus(shifted, -kMagic));
  float p = plus(mul(f, 1.54035304e-4f), 1.33335581e-3f);
  p = plus(mul(p, f), 9.61812911e-3f);
  p = plus(mul(p, f), 5.55041087e-2f);
  p = plus(mul(p, f), 2.40226507e-1f);
  p = plus(mul(p, f), 6.93147181e-1f);
  p = plus(mul(p, f), 1.0f);
  const uint32_t exponent = (bits_of_float(shifted) - bits_of_float(kMagic)) << 23;
  return t > -126.0f ? float_of_bits(bits_of_float(p) + exponent) : 0.0f;
}

// A row of logits and what the block's threads find in it. All threads make the same calls.
struct Scan {
  static constexpr int kThreads = Draw::kThreads, kPiece = Draw::kPiece, kLanes = Draw::kLanes;
  const Thread& t;
  const float* row;
  int n;
  float* weights;  // [kPiece], shared
  float* lanes;    // [kThreads], shared
  float* reduce;   // [kThreads / kWarp], shared
  double* total;   // shared, like what follows
  int* found;

  PENSTOCK_DEVICE Scan(const Thread& thread, const float* values, int n_values)
      : t(thread), row(values), n(n_values) {
    weights = t.shared_as<float>(), lanes = weights + kPiece, reduce = lanes + kThreads;
    total = reinterpret_cast<double*>(reduce + 32), found = reinterpret_cast<int*>(total + 1);
  }

  PENSTOCK_DEVICE float largest() const {
    float best = kMinusInf;
    for (int i = t.index; i < n; i += kThreads) best = row[i] > best ? row[i] : best;
    return block_max<kThreads>(t, best, reduce);
  }
  PENSTOCK_DEVICE int first_equal(float value) const {
    int best = INT32_MIN;
    for (int i = t.index; i < n; i += kThreads) best = row[i] == value && -i > best ? -i : best;
    return -block_max<kThreads>(t, best, reinterpret_cast<int*>(reduce));
  }
  PENSTOCK_DEVICE int count_greater(float value) const {
    int count = 0;
    for (int i = t.index; i < n; i += kThreads) count += row[i] > value ? 1 : 0;
    return block_sum<kThreads>(t, count, reinterpret_cast<int*>(reduce));
  }
  PENSTOCK_DEVICE float weight(int i, float most, float inverse) const {
    return exp_nonpositive(mul(plus(row[i], -most), inverse));
  }

  // The sum of all weights; of every piece into piece_sums unless that is null. Lanes of a piece in floats, then these and the
  // pieces in doubles, in their order.
  PENSTOCK_DEVICE double sum(float most, float inverse, double* piece_sums) const {
    if (t.index == 0) *total = 0;
    for (int first = 0; first < n; first += kThreads / kLanes * kPiece) {
      const int begin = first + t.index / kLanes * kPiece;
      const int end = n - begin < kPiece ? n : begin + kPiece;
      float lane = 0.0f;
      for (int i = begin + t.index % kLanes; i < end; i += kLanes)
        lane = plus(lane, weight(i, most, inverse));
      lanes[t.index] = lane;
      t.sync();
      for (int piece = 0; t.index == 0 && piece < kThreads / kLanes && first + piece * kPiece < n; ++piece) {
        double of_piece = 0;
        for (int i = 0; i < kLanes; ++i) of_piece += static_cast<double>(lanes[piece * kLanes + i]);
        if (piece_sums != nullptr) piece_sums[first / kPiece + piece] = of_piece;
        *total += of_piece;
      }
      t.sync();
    }
    const double result = *total;
    t.sync();
    return result;
  }

  // Where the cumulative weights reach `target`: the first piece by the sums, then one by one.
  PENSTOCK_DEVICE int pick(float most, float inverse, double target, const double* piece_sums) const {
    if (t.index == 0) {
      int piece = 0;
      const int n_pieces = (n + kPiece - 1) / kPiece;
      while (piece + 1 < n_pieces && target >= piece_sums[piece]) target = minus(target, piece_sums[piece++]);
      found[0] = piece * kPiece, found[1] = -1,
      found[2] = 0;  // the piece's begin; the last with a weight; the end
      *total = target;
    }
    t.sync();
    for (int begin = found[0]; begin < n; begin += kPiece) {
      const int count = n - begin < kPiece ? n - begin : kPiece;
      for (int i = t.index; i < count; i += kThreads) weights[i] = weight(begin + i, most, inverse);
      t.sync();
      if (t.index == 0) walk(begin, count);
      t.sync();
      if (found[2] != 0) break;
    }
    const int last = found[1];
    t.sync();
    return last >= 0 ? last : first_equal(most);
  }
  PENSTOCK_DEVICE void walk(int begin, int count) const {
    double target = *total;
    for (int i = 0; i < count && found[2] == 0; ++i) {
      if (!(weights[i] > 0.0f)) continue;
      found[1] = begin + i;
      target = minus(target, static_cast<double>(weights[i]));
      if (target < 0) found[2] = 1;
    }
    *total = target;
  }
};

}  // namespace

PENSTOCK_BODY void Draw::operator()(const Thread& t) const {
  const DrawOnDevice& draw = draws[t.x];
  const int n = logits.cols;
  if (draw.row < 0) {
    if (t.index == 0) drawn[t.x] = {-1, 0, 0.0f, 0.0f, 0.0};
    return;
  }
  const float* const raw = logits.row(draw.row);
  float* const row = edited + static_cast<int64_t>(t.x) * n;
  const Scan as_it_came(t, raw, n), scan(t, row, n);
  DrawnOnDevice result = {-1, 0, 0.0f, 0.0f, 0.0};
  if (draw.report || draw.likeliest) {
    result.raw_most = as_it_came.largest();
    result.raw_sum = as_it_came.sum(result.raw_most, 1.0f, nullptr);
  }
  for (int i = t.index; i < n; i += kThreads) {
    const bool inside = draw.mask < 0 || (masks[draw.mask + i / 32] >> (i % 32) & 1) != 0;
    row[i] = inside ? raw[i] : kMinusInf;
  }
  t.sync();
  for (int i = 0; i < draw.n_edits; ++i) {  // a thread makes those of its tokens, in their order
    const EditOnDevice& edit = edits[draw.edits + i];
    if (edit.token % kThreads != t.index) continue;
    float& logit = row[edit.token];
    if (edit.kind == 0) logit = edit.value;
    if (edit.kind == 1) logit = plus(logit, edit.value);
    if (edit.kind == 2) logit = logit > 0 ? logit / edit.value : mul(logit, edit.value);
  }
  t.sync();
  const float most = scan.largest();
  if (most > kMinusInf && most < INFINITY) {
    if (draw.temperature == 0.0f) {
      result.token = scan.first_equal(most);
    } else {
      const float inverse = 1.0f / draw.temperature;
      double* const sums = piece_sums + static_cast<int64_t>(t.x) * ((n + kPiece - 1) / kPiece);
      const double total = scan.sum(most, inverse, sums);
      result.token = scan.pick(most, inverse, times(draw.u, total), sums);
    }
  }
  if (draw.report && result.token >= 0) {
    result.raw_logit = raw[result.token];
    result.rank = 1 + as_it_came.count_greater(result.raw_logit);
  }
  if (t.index == 0) drawn[t.x] = result;
}
PENSTOCK_KERNEL(Draw)

PENSTOCK_BODY void TakeDrawnTokens::operator()(const Thread& t) const {
  const int i = t.x * kThreads + t.index;
  if (i >= batch->n_tokens || batch->tokens[i] >= 0) return;
  const_cast<int32_t*>(batch->tokens)[i] = drawn[-1 - batch->tokens[i]].token;
}
PENSTOCK_KERNEL(TakeDrawnTokens)

}  // namespace penstock::cuda
