// Scans of a row of logits by the threads of a block, with the results of the host's scans
// (kernels/scan_kernels.h), bit for bit.
#pragma once
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

inline constexpr float kMinusInf = -INFINITY;
inline constexpr int kScanPiece = 1024, kScanLanes = 16;  // as kSumPiece: order of the host's sums

// Arithmetic that compilers do not contract to fma, as on the host.
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

// Returns exp(x) for x <= 0 with the bits of the host's scans: 0 below about -87 and for NaN.
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

// Shared memory of a block.
struct ScanMemory {
  static constexpr int kSlots = 1024;  // pieces x lanes summed at a time
  static constexpr int kBins = 256;    // values of a digit of a key
  static constexpr int kMostListed = 1024;
  double total;
  uint64_t prefix;
  int found[4];
  float weights[kScanPiece];
  float lanes[kSlots];
  double pieces[kSlots / kScanLanes];
  float reduce[kWarp];
  int bins[kBins];
  uint64_t listed[kMostListed];
};

// Maps logits to x = (value - most) * inverse: the largest has x = 0 and the weight exp(x) = 1.
struct ScanScaleOnDevice {
  float most, inverse;
};

// Scans of a row. REQUIRES: all threads of the block make the same calls.
template <int kThreads>
struct Scan {
  static constexpr int kPiece = kScanPiece, kLanes = kScanLanes, kSlots = ScanMemory::kSlots;
  const Thread& t;
  const float* row;
  int n;
  ScanMemory& memory;

  PENSTOCK_DEVICE Scan(const Thread& thread, const float* values, int n_values)
      : t(thread), row(values), n(n_values), memory(*thread.shared_as<ScanMemory>()) {}

  // Calls fn(i, row[i]) for the thread's elements, with ascending i; several loads are in flight.
  template <class Fn>
  PENSTOCK_DEVICE void each(Fn fn) const {
    struct alignas(16) Four {
      float x[4];
    };
    constexpr int kAhead = 4, kTurn = 4 * kThreads;
    const bool in_fours = n % 4 == 0 && reinterpret_cast<uintptr_t>(row) % sizeof(Four) == 0;
    const int whole = in_fours ? n / (kAhead * kTurn) * (kAhead * kTurn) : 0;
    for (int first = 4 * t.index; first < whole; first += kAhead * kTurn) {
      Four values[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
        values[a] = *reinterpret_cast<const Four*>(row + first + a * kTurn);
#pragma unroll
      for (int j = 0; j < 4 * kAhead; ++j)
        fn(first + j / 4 * kTurn + j % 4, values[j / 4].x[j % 4]);
    }
    for (int i = whole + t.index; i < n; i += kThreads) fn(i, row[i]);
  }
  PENSTOCK_DEVICE float largest() const {
    float best = kMinusInf;
    each([&](int, float value) { best = value > best ? value : best; });
    return block_max<kThreads>(t, best, memory.reduce);
  }
  // Returns the first index of the largest value, in one pass; n if all are -infinity.
  PENSTOCK_DEVICE int likeliest() const {
    float best = kMinusInf;
    int at = n;
    each([&](int i, float value) {  // i ascends
      if (value > best) best = value, at = i;
    });
    const float most = block_max<kThreads>(t, best, memory.reduce);
    const int own = best == most ? -at : INT32_MIN;
    return -block_max<kThreads>(t, own, reinterpret_cast<int*>(memory.reduce));
  }
  PENSTOCK_DEVICE int first_equal(float value) const {
    int best = INT32_MIN;
    each([&](int i, float x) { best = x == value && -i > best ? -i : best; });
    return -block_max<kThreads>(t, best, reinterpret_cast<int*>(memory.reduce));
  }
  PENSTOCK_DEVICE int count_greater(float value) const {
    int count = 0;
    for (int i = t.index; i < n; i += kThreads) count += row[i] > value ? 1 : 0;
    return block_sum<kThreads>(t, count, reinterpret_cast<int*>(memory.reduce));
  }
  PENSTOCK_DEVICE float x_of(int i, ScanScaleOnDevice scale) const {
    return mul(plus(row[i], -scale.most), scale.inverse);
  }
  PENSTOCK_DEVICE float weight(int i, ScanScaleOnDevice scale) const {
    return exp_nonpositive(x_of(i, scale));
  }

  // Returns the sum of all weights; writes that of every piece to piece_sums unless null. Lanes of
  // a piece are summed in floats, lanes and pieces in doubles, in order.
  PENSTOCK_DEVICE double sum(ScanScaleOnDevice scale, double* piece_sums) const {
    if (t.index == 0) memory.total = 0;
    for (int first = 0; first < n; first += kSlots / kLanes * kPiece) {
      for (int slot = t.index; slot < kSlots; slot += kThreads) {
        const int begin = first + slot / kLanes * kPiece;
        if (begin >= n) break;
        const int end = n - begin < kPiece ? n : begin + kPiece;
        float lane = 0.0f;
        for (int i = begin + slot % kLanes; i < end; i += kLanes)
          lane = plus(lane, weight(i, scale));
        memory.lanes[slot] = lane;
      }
      t.sync();
      for (int piece = t.index; piece < kSlots / kLanes && first + piece * kPiece < n;
           piece += kThreads) {
        double of_piece = 0;
        for (int i = 0; i < kLanes; ++i)
          of_piece += static_cast<double>(memory.lanes[piece * kLanes + i]);
        memory.pieces[piece] = of_piece;
        if (piece_sums != nullptr) piece_sums[first / kPiece + piece] = of_piece;
      }
      t.sync();
      for (int piece = 0; t.index == 0 && piece < kSlots / kLanes && first + piece * kPiece < n;
           ++piece)
        memory.total += memory.pieces[piece];
      t.sync();
    }
    const double result = memory.total;
    t.sync();
    return result;
  }

  // Returns the index at which cumulative weights exceed `target`: finds the piece, then the token.
  PENSTOCK_DEVICE int pick(ScanScaleOnDevice scale, double target, const double* piece_sums) const {
    // start of the piece; last index with a weight; whether the target is reached
    int* const found = memory.found;
    const int n_pieces = (n + kPiece - 1) / kPiece;
    auto* const near = reinterpret_cast<double*>(memory.listed);
    if (n_pieces <= ScanMemory::kMostListed) {  // one thread reads all pieces
      for (int piece = t.index; piece < n_pieces; piece += kThreads)
        near[piece] = piece_sums[piece];
      piece_sums = near;
      t.sync();
    }
    if (t.index == 0) {
      int piece = 0;
      while (piece + 1 < n_pieces && target >= piece_sums[piece])
        target = minus(target, piece_sums[piece++]);
      found[0] = piece * kPiece, found[1] = -1, found[2] = 0;
      memory.total = target;
    }
    t.sync();
    for (int begin = found[0]; begin < n; begin += kPiece) {
      const int count = n - begin < kPiece ? n - begin : kPiece;
      for (int i = t.index; i < count; i += kThreads) memory.weights[i] = weight(begin + i, scale);
      t.sync();
      if (t.index == 0) walk(begin, count);
      t.sync();
      if (found[2] != 0) break;
    }
    const int last = found[1];
    t.sync();
    return last >= 0 ? last : first_equal(scale.most);
  }

 private:
  PENSTOCK_DEVICE void walk(int begin, int count) const {
    double target = memory.total;
    for (int i = 0; i < count && memory.found[2] == 0; ++i) {
      if (!(memory.weights[i] > 0.0f)) continue;
      memory.found[1] = begin + i;
      target = minus(target, static_cast<double>(memory.weights[i]));
      if (target < 0) memory.found[2] = 1;
    }
    memory.total = target;
  }
};

}  // namespace penstock::cuda
