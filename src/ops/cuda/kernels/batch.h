// A step's batch in the device's memory. Kernels get a pointer to it that stays the same from step
// to step, so that what was recorded of one step can be played for another.
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
  // of a sequence, that attention may take apart from the others
  static constexpr int kPieceTokens = 256;
  // new ones of a sequence, that attention takes one by one
  static constexpr int kFewTokens = 8;
  int32_t n_tokens, n_seqs, n_outputs, n_groups;
  const int32_t* tokens;       // [n_tokens]; -1 - i: drawn[i]
  const int32_t* positions;    // [n_tokens]
  const int32_t* sequences;    // [n_tokens] whose token it is
  const int32_t* seq_offsets;  // [n_seqs + 1]
  const int32_t* seq_lens;     // [n_seqs]
  const int32_t* output_rows;  // [n_outputs]
  const int32_t* token_types;  // [n_tokens]
  const int32_t* adapters;     // [n_seqs]
  const int32_t* long_ropes;   // [n_seqs]
  const uint64_t* tree_masks;  // [n_tokens]; 0: causal
  // Pieces that a block each attends to, of steps that are worth it.
  int32_t n_pieces;
  const int32_t* piece_tokens;  // [n_pieces] whose it is
  // [n_tokens]; a token's are those of its whole sequence
  const int32_t* first_pieces;
  KvOnDevice kv[kMaxGroups];
  const int32_t* drawn;  // tokens, by the draws before the step
  DrawsOnDevice draws;   // of the step
};

}  // namespace penstock::cuda
