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
  int32_t edits, n_edits;  // in Draw::edits
  int64_t mask;            // in Draw::masks, -1: all tokens
  float temperature;
  bool report, likeliest;
  double u;
};

struct DrawnOnDevice {
  int32_t token;  // -1: none is possible
  int32_t rank;
  float raw_most, raw_logit;  // of the row as it came: its largest, and that of the token
  double raw_sum;             // of exp(logit - largest)
};

// A block per draw: mask, edits, then the likeliest, or where the cumulative distribution reaches u.
struct Draw {
  static constexpr int kThreads = 256;
  static constexpr int kPiece = 1024, kLanes = 16;  // as kSumPiece: how the host adds weights
  static constexpr int kSharedBytes = kPiece * 4 + kThreads * 4 + 256;
  Rows logits;
  const DrawOnDevice* draws;
  const EditOnDevice* edits;
  const uint32_t* masks;
  float* edited;       // [draws, logits.cols]
  double* piece_sums;  // [draws, pieces]
  DrawnOnDevice* drawn;

  static int pieces_of(int n) { return (n + kPiece - 1) / kPiece; }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// A token -1 - i of the batch becomes what draw i gave. A thread per token.
struct TakeDrawnTokens {
  static constexpr int kThreads = 64;
  const BatchOnDevice* batch;
  const DrawnOnDevice* drawn;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
