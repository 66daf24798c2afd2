// Attention to chosen tokens (AttentionParams::selected), or to those of a window and to entries
// (EntryParams).
#pragma once
#include "ops/cuda/kernels/attention.h"

namespace penstock::cuda {

// What tokens attend to, as a list of places for each of them, which is divided into pieces. A token
// that sees no more than may be selected has all that it sees.
struct ChosenOnDevice {
  const int32_t* selected = nullptr;  // [row][stride], of every kv head if `block` > 0
  int64_t stride = 0;
  int most = 0;             // that may be selected
  int pool = 1, block = 0;  // AttentionParams::selected_pool, selected_block
  int ratio = 0;            // tokens of an entry; 0: there are none
  KvLayerOnDevice entries;  // their layer of the cache
  int entries_group = 0;
};

// As Attend, AttendPieces and JoinPieces, for these lists, with sums of `n_pieces` for each row, of
// kPiece places or, joined, `piece`. Grid::x = rows, or rows * n_pieces; Grid::y = kv heads * tiles of
// heads.
struct AttendChosen : AttentionOnDevice {
  static constexpr int kThreads = Attend::kThreads, kPiece = Attend::kPiece;
  ChosenOnDevice chosen;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};
struct AttendChosenPieces : AttentionOnDevice {
  static constexpr int kThreads = Attend::kThreads;
  ChosenOnDevice chosen;
  int n_pieces;
  float* sums;  // [row][n_pieces][query head][value_dim + 2]
  PENSTOCK_BODY void operator()(const Thread& t) const;
};
struct JoinChosenPieces : AttentionOnDevice {
  static constexpr int kThreads = Attend::kThreads;
  ChosenOnDevice chosen;
  int n_pieces, piece;
  const float* sums;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
