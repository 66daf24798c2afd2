// One step's work: a flat, ragged list of tokens. Prefill, decode, chunks and drafts look the same.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/sample_row.h"
#include "penstock/types.h"

namespace penstock {

// Where the tokens of one cache group live. Slot = block * block_size + offset in the block. A group of states has no
// slots, and for each sequence one block, which is read and then holds the state after its last token; or as many as the step
// has tokens of it: the first is read, and each then holds the state after its token.
struct KvView {
  std::span<const int32_t> slots;          // [n_tokens] where each new token's K and V go
  std::span<const BlockId> block_tables;   // all sequences' tables, one after the other
  std::span<const int32_t> table_offsets;  // [n_seqs + 1] into block_tables
  // Position held by entry 0 of each sequence's table: 0 unless a sliding window has dropped leading blocks.
  std::span<const int32_t> first_positions;  // [n_seqs], or empty for all 0
};

struct Batch {
  // [n_tokens]. Where the step before drew, -1 - i stands for the token of result i of its last draws.
  std::span<const TokenId> tokens;
  std::span<const int32_t>
      positions;  // [n_tokens] for rope; index in the sequence unless a draft tree branches
  std::span<const int32_t> seq_offsets;  // [n_seqs + 1] into tokens
  std::span<const int32_t> seq_lens;     // [n_seqs] tokens in the cache after this step
  std::span<const KvView> kv;            // [n_groups]
  // [n_tokens] or empty. Bit j: the token sees new token j of its own sequence (and all older tokens). 0: causal order.
  std::span<const uint64_t> tree_masks;
  std::span<const int32_t> output_rows;  // token indices whose logits are wanted, ascending
  // [n output rows] or empty: the logits of how many tokens, the most likely ones, are wanted of a row; 0: all. Those of others may be
  // -infinity.
  std::span<const int32_t> row_tops;
  std::span<const int32_t> token_types;  // [n_tokens] of encoders that have them; empty: all 0
  std::span<const int32_t> adapters;     // [n_seqs] slot of the sequence's adapter, -1 = none; empty: all -1
  // [n_seqs] 1: its tokens are rotated by RopeParams::long_inv_freq, where there are such; empty: all 0
  std::span<const int32_t> long_ropes;
  // Draws from the step's logits, or empty: they are a part of the step, as if Ops::sample() was called behind it. Only where the backend
  // samples; without masks, so that nothing of a row is as long as the vocabulary.
  std::span<const SampleRow> draws;
  std::span<SampleResult> drawn;  // [n_draws]

  int n_tokens() const { return static_cast<int>(tokens.size()); }
  int n_seqs() const { return static_cast<int>(seq_lens.size()); }
};

}  // namespace penstock
