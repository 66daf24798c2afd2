// The most likely tokens of a row, sorted, and the filters on them, computed by a block with the
// order and the sums of the host's Candidates.
#pragma once
#include "ops/cuda/kernels/scan.h"

namespace penstock::cuda {

// Sort key of a token: in the upper half how far it is below the largest logit (x <= 0), in the
// lower half its id. Ascending keys are the order of Candidates.
PENSTOCK_DEVICE uint64_t key_of(float x, int id) {
  return static_cast<uint64_t>(x == 0.0f ? 0u : bits_of_float(x) & 0x7fffffffu) << 32 |
         static_cast<uint32_t>(id);
}
PENSTOCK_DEVICE int id_of_key(uint64_t key) { return static_cast<int>(key & 0xffffffffu); }
PENSTOCK_DEVICE float weight_of_key(uint64_t key) {
  return exp_nonpositive(-float_of_bits(static_cast<uint32_t>(key >> 32)));
}

// REQUIRES: all threads of the block make the same calls.
template <int kThreads>
struct ShortList {
  static constexpr int kMost = ScanMemory::kMostListed;
  const Scan<kThreads>& scan;
  ScanScaleOnDevice scale;
  // least x of a token, except the likeliest
  float least;

  PENSTOCK_DEVICE ShortList(const Scan<kThreads>& of, ScanScaleOnDevice s, float least_x)
      : scan(of), scale(s), least(least_x) {}

  PENSTOCK_DEVICE bool inside(int i, uint64_t& key) const {
    const float x = scan.x_of(i, scale);
    key = key_of(x, i);
    return scan.row[i] > kMinusInf && (x >= least || x == 0.0f);
  }
  PENSTOCK_DEVICE int count() const {
    int inside_here = 0;
    uint64_t key;
    for (int i = scan.t.index; i < scan.n; i += kThreads) inside_here += inside(i, key) ? 1 : 0;
    return block_sum<kThreads>(scan.t, inside_here, reinterpret_cast<int*>(scan.memory.reduce));
  }

  // Sorts the k most likely tokens, or a few more, into memory.listed. REQUIRES: k <= kMost.
  PENSTOCK_DEVICE void select(int k) const {
    const Thread& t = scan.t;
    ScanMemory& memory = scan.memory;
    const uint64_t last = last_key(k);
    if (t.index == 0) memory.found[0] = 0;
    t.sync();
    uint64_t key;
    for (int i = t.index; i < scan.n; i += kThreads)
      if (inside(i, key) && key <= last) memory.listed[atomic_add(&memory.found[0], 1)] = key;
    t.sync();
    const int n_listed = memory.found[0];
    int padded = 1;
    while (padded < n_listed) padded *= 2;
    for (int i = n_listed + t.index; i < padded; i += kThreads) memory.listed[i] = ~uint64_t{0};
    t.sync();
    sort(padded);
  }

  // Returns the sum of memory.weights of the first `n` listed tokens, in order.
  PENSTOCK_DEVICE double total(int n) const {
    if (scan.t.index == 0) {
      double sum = 0;
      for (int i = 0; i < n; ++i) sum += static_cast<double>(scan.memory.weights[i]);
      scan.memory.total = sum;
    }
    scan.t.sync();
    const double result = scan.memory.total;
    scan.t.sync();
    return result;
  }
  // Computes memory.weights of the first `n` listed tokens. REQUIRES: n <= kMost.
  PENSTOCK_DEVICE void weigh(int n) const {
    for (int i = scan.t.index; i < n; i += kThreads)
      scan.memory.weights[i] = weight_of_key(scan.memory.listed[i]);
    scan.t.sync();
  }
  // Returns how many of the first `n` tokens reach the weight `mass`, at least 1; -1: none.
  PENSTOCK_DEVICE int prefix(int n, double mass) const {
    int* const found = scan.memory.found;
    if (scan.t.index == 0) {
      double sum = 0;
      int count = 0;
      while (count < n && sum < mass) sum += static_cast<double>(scan.memory.weights[count++]);
      found[0] = sum >= mass ? (count > 1 ? count : 1) : -1;
    }
    scan.t.sync();
    const int result = found[0];
    scan.t.sync();
    return result;
  }
  // Returns the token at which cumulative weights of the first `n` exceed `target`.
  PENSTOCK_DEVICE int pick(int n, double target) const {
    int* const found = scan.memory.found;
    if (scan.t.index == 0) {
      int i = 0;
      for (; i < n - 1; ++i) {
        target = minus(target, static_cast<double>(scan.memory.weights[i]));
        if (target < 0) break;
      }
      found[0] = id_of_key(scan.memory.listed[i]);
    }
    scan.t.sync();
    const int result = found[0];
    scan.t.sync();
    return result;
  }

 private:
  // Returns a key such that at least k and at most kMost keys are not above it: radix selection
  // from the top digit, until few enough are left. Keys are unique, so the last digit leaves k.
  PENSTOCK_DEVICE uint64_t last_key(int k) const {
    const Thread& t = scan.t;
    ScanMemory& memory = scan.memory;
    const int enough = 2 * k < 64 ? 64 : (2 * k < kMost ? 2 * k : kMost);
    if (t.index == 0) memory.prefix = 0, memory.found[0] = k, memory.found[1] = 0;
    for (int shift = 56;; shift -= 8) {
      for (int i = t.index; i < ScanMemory::kBins; i += kThreads) memory.bins[i] = 0;
      t.sync();
      const uint64_t prefix = memory.prefix;
      uint64_t key;
      for (int i = t.index; i < scan.n; i += kThreads)
        if (inside(i, key) && (shift == 56 || key >> (shift + 8) == prefix))
          atomic_add(&memory.bins[key >> shift & 0xff], 1);
      t.sync();
      if (t.index == 0) choose_digit(enough);
      t.sync();
      if (memory.found[2] != 0 || shift == 0) {
        const uint64_t last = ((memory.prefix + 1) << shift) - 1;
        t.sync();
        return last;
      }
    }
  }
  // found[0]: number of keys wanted of those with the prefix; found[1]: number of keys below them;
  // found[2]: whether the list is short enough.
  PENSTOCK_DEVICE void choose_digit(int enough) const {
    int* const found = scan.memory.found;
    const int* const bins = scan.memory.bins;
    int digit = 0;
    while (digit < ScanMemory::kBins - 1 && bins[digit] < found[0]) {
      found[0] -= bins[digit], found[1] += bins[digit];
      ++digit;
    }
    scan.memory.prefix = scan.memory.prefix << 8 | static_cast<uint32_t>(digit);
    found[2] = found[1] + bins[digit] <= enough ? 1 : 0;
  }

  // Bitonic sort; all pairs of a pass in parallel. REQUIRES: n is a power of two.
  PENSTOCK_DEVICE void sort(int n) const {
    uint64_t* const keys = scan.memory.listed;
    for (int size = 2; size <= n; size *= 2) {
      for (int stride = size / 2; stride > 0; stride /= 2) {
        for (int pair = scan.t.index; pair < n / 2; pair += kThreads) {
          const int low = 2 * pair - pair % stride, high = low + stride;
          const bool ascending = (low & size) == 0;
          const uint64_t a = keys[low], b = keys[high];
          if ((a > b) == ascending) keys[low] = b, keys[high] = a;
        }
        scan.t.sync();
      }
    }
  }
};

}  // namespace penstock::cuda
