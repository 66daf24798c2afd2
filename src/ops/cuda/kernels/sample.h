// Draws on the device (Ops::sample): the numbers that the host's scans give (kernels/scan_kernels.h), bit for bit, so that the
// same logits and the same u give the same token as Sampler::draw.
#pragma once
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/rows.h"

namespace penstock::cuda {

struct EditOnDevice {  // as LogitEdit
  int32_t token;
  uint16_t kind, phase;
  float value;
};

struct DrawOnDevice {
  int32_t row;             // of the logits; -1: left to the host
  int32_t edits, n_edits;  // in DrawRows::edits
  int32_t n_top;           // most likely tokens of the row as it came
  int64_t mask;            // in DrawRows::masks, -1: all tokens
  float temperature;
  float least_x;  // (logit - largest) / temperature of what min-p keeps; -infinity: everything
  int32_t top_k;  // 0: all
  float top_p;    // 1: all
  bool report, likeliest;
  double u;
};

struct DrawnOnDevice {
  static constexpr int kNone = -1, kLeft = -2;  // of token: none is possible; left to the host
  int32_t token;
  int32_t rank;
  int32_t n_top;
  float raw_most, raw_logit;  // of the row as it came: its largest, and that of the token
  double raw_sum;             // of exp(logit - largest)
};

struct TopOnDevice {
  int32_t token;
  float raw_logit;
};

// A block per draw: mask, edits, then the likeliest; or filters, and where the cumulative distribution of what they leave reaches u.
template <int kBlock>
struct DrawRows {
  static constexpr int kThreads = kBlock;
  static constexpr int kSharedBytes = 15 * 1024;
  Rows logits;
  const DrawOnDevice* draws;
  const EditOnDevice* edits;
  const uint32_t* masks;
  float* edited;       // [draws, logits.cols]
  double* piece_sums;  // [draws, pieces]
  DrawnOnDevice* drawn;
  TopOnDevice* tops;  // [draws, tops_stride]
  int tops_stride;

  PENSTOCK_BODY void operator()(const Thread& t) const;
};
using Draw = DrawRows<256>;
using DrawAlone = DrawRows<1>;  // the same by one thread: for tests, on the host only

// Of kScanPiece logits.
inline int draw_pieces(int n_logits) { return (n_logits + 1023) / 1024; }

// A token -1 - i of the batch becomes what draw i gave. A thread per token.
struct TakeDrawnTokens {
  static constexpr int kThreads = 64;
  const BatchOnDevice* batch;
  const DrawnOnDevice* drawn;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
