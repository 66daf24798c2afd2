// Draws on the device (Ops::sample), with the bits of the host's scans
// (kernels/scan_kernels.h): the same logits and the same u give the same token as
// Sampler::draw.
#pragma once
#include "ops/cuda/kernels/draws.h"
#include "ops/cuda/kernels/rows.h"

namespace penstock::cuda {

// One block per draw; surplus blocks do nothing. Applies mask and edits; then takes the likeliest
// token, or filters and inverts the cumulative distribution at u.
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
using DrawLong = DrawRows<1024>;  // for large vocabularies
// as Draw, by one thread: for tests on the host
using DrawAlone = DrawRows<1>;

// Number of pieces of kScanPiece logits.
inline int draw_pieces(int n_logits) { return (n_logits + 1023) / 1024; }

}  // namespace penstock::cuda
