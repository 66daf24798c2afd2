// A step's batch in device memory. Its address is the same in all steps, so that recordings can be
// replayed with another batch.
#pragma once
#include <cstdint>

#include "ops/cuda/kernels/draws.h"

namespace penstock::cuda {

struct KvOnDevice {
  const int32_t* slots;            // [n_tokens]
  const int32_t* block_tables;     // all sequences' tables, one after the other
  const int32_t* table_offsets;    // [n_seqs + 1]
  const int32_t* first_positions;  // [n_seqs]
};

struct BatchOnDevice {
  static constexpr int kMaxGroups = 8;
  // tokens of a piece of a sequence, for split attention
  static constexpr int kPieceTokens = 256;
  // most new tokens of a sequence that attention computes one by one
  static constexpr int kFewTokens = 8;
  int32_t n_tokens, n_seqs, n_outputs, n_groups;
  const int32_t* tokens;       // [n_tokens]; -1 - i: drawn[i]
  const int32_t* positions;    // [n_tokens]
  const int32_t* sequences;    // [n_tokens] index of the sequence
  const int32_t* seq_offsets;  // [n_seqs + 1]
  const int32_t* seq_lens;     // [n_seqs]
  const int32_t* output_rows;  // [n_outputs]
  const int32_t* token_types;  // [n_tokens]
  const int32_t* adapters;     // [n_seqs]
  const int32_t* long_ropes;   // [n_seqs]
  const uint64_t* tree_masks;  // [n_tokens]; 0: causal
  const int32_t* sights;       // [n_tokens] or null: Batch::sights
  // [n_tokens][3] or null: `positions` on all axes
  const int32_t* axis_positions;
  // [n_tokens] index of the token's given row, -1 = none; null: no token has one
  const int32_t* given_of;
  const float* given;  // [levels][n_given][model_dim]
  int32_t n_given;
  // Pieces for split attention, one block each; none if it would not be faster.
  int32_t n_pieces;
  const int32_t* piece_tokens;  // [n_pieces] the token of a piece
  // [n_tokens]; the pieces of a token cover its whole sequence
  const int32_t* first_pieces;
  KvOnDevice kv[kMaxGroups];
  const int32_t* drawn;  // tokens of the previous step's draws
  DrawsOnDevice draws;   // the draws of this step
};

}  // namespace penstock::cuda
