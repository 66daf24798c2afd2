// Draws on the device (Ops::sample): the numbers that the host's scans give
// (kernels/scan_kernels.h), bit for bit, so that the same logits and the same u give the same token
// as Sampler::draw.
#pragma once
#include "ops/cuda/kernels/draws.h"
#include "ops/cuda/kernels/rows.h"

namespace penstock::cuda {

// A block per draw, those beyond the last do nothing: mask, edits, then the likeliest; or filters,
// and where the cumulative distribution of what they leave reaches u.
template <int kBlock>
struct DrawRows {
  static constexpr int kThreads = kBlock;
  static constexpr int kSharedBytes = 19 * 1024;
  Rows logits;
  const DrawsOnDevice* asked;
  float* edited;       // [draws, logits.cols]
  double* piece_sums;  // [draws, pieces]

  PENSTOCK_BODY void operator()(const Thread& t) const;
};
using Draw = DrawRows<256>;
using DrawLong = DrawRows<1024>;  // of many tokens
// the same by one thread: for tests, on the host only
using DrawAlone = DrawRows<1>;

// Of kScanPiece logits.
inline int draw_pieces(int n_logits) { return (n_logits + 1023) / 1024; }

}  // namespace penstock::cuda
