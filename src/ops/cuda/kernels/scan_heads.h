// Scans of states that stay in registers.
#pragma once
#include "ops/cuda/kernels/recurrence.h"

namespace penstock::cuda {

// As ScanStates without `rates`, with another order of sums: a block has kFeatures features of a
// head, and Lanes lanes share a feature's state, up to 4 Chunks keys each. Keys, queries and values of
// kTokens tokens are copied to shared memory while those before are computed. What a token gives
// does not depend on how tokens are split into steps. REQUIRES: suits(). Grid::x = maximum number of
// sequences, Grid::y = heads * parts_of(value_dim).
template <int Chunks, int Lanes>
struct ScanHeads : ScanStates {
  static constexpr int kThreads = 128, kLanes = Lanes, kFeatures = kThreads / Lanes, kTokens = 8;
  static constexpr int kKeys = 4 * Lanes * Chunks;
  // floats of a stage: keys, queries, decays by key, values, weights and decays of tokens
  static constexpr int kStage = kTokens * (3 * kKeys + kFeatures + 4);
  static constexpr int kSharedBytes = 2 * kStage * 4;

  explicit ScanHeads(const ScanStates& of) : ScanStates(of) {}
  static int parts_of(int value_dim) { return (value_dim + kFeatures - 1) / kFeatures; }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Whether one of ScanHeads computes the scan: rows are copied in pieces of 16 bytes.
inline bool suits_scan_heads(const ScanStates& scan) {
  const auto whole = [](const Rows& rows) {
    return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride % 4 == 0;
  };
  constexpr int kMostKeys = 256;
  return scan.rates == nullptr && scan.key_dim <= kMostKeys && scan.key_dim % 4 == 0 &&
         scan.value_dim % 4 == 0 && (scan.q_at | scan.k_at | scan.v_at) % 4 == 0 &&
         whole(scan.qkv) && (scan.decays_per_head == 1 || whole(scan.decay));
}

}  // namespace penstock::cuda
