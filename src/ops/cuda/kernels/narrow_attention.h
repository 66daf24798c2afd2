// Attention over caches of 4-bit codes (KvCode::kI4).
#pragma once
#include "ops/cuda/kernels/attention.h"

namespace penstock::cuda {

// As Attend, AttendPieces and JoinPieces, all with the shared memory of Attend: blocks rotate their
// queries, and what is attended to is rotated back.
struct AttendNarrow : AttentionOnDevice {
  static constexpr int kThreads = Attend::kThreads;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};
struct AttendNarrowPieces : AttentionOnDevice {
  static constexpr int kThreads = Attend::kThreads;
  float* sums;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};
struct JoinNarrowPieces : AttentionOnDevice {
  static constexpr int kThreads = Attend::kThreads;
  const float* sums;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Rotates rows of heads as those of a cache of 4 bits are, forth or back. Grid::x = rows, Grid::y =
// heads.
struct TurnHeads {
  static constexpr int kThreads = 64;
  Rows from, to;
  int head_dim, rotated;  // rotated: features that are rotated together
  bool back;
  int shared_bytes() const { return head_dim * static_cast<int>(sizeof(float)); }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
