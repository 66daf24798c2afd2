// The work of one step: a flat, ragged list of tokens. Prefill, decode, chunks and drafts have the
// same form.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "kernels/sample_row.h"
#include "penstock/types.h"

namespace penstock {

// Places of the step's tokens in one cache group. Slot = block * block_size + offset in the block.
// A group of recurrent states has no slots. Each sequence has one block in it, which is read and
// then holds the state after the last token; or as many as the step has tokens of it: the first is
// read, and block i then holds the state after token i.
struct KvView {
  // [n_tokens] slot for each new token's K and V
  std::span<const int32_t> slots;
  std::span<const BlockId> block_tables;   // all sequences' tables, one after the other
  std::span<const int32_t> table_offsets;  // [n_seqs + 1] into block_tables
  // Position held by entry 0 of each sequence's table: 0 unless a sliding window has dropped
  // leading blocks.
  std::span<const int32_t> first_positions;  // [n_seqs], or empty for all 0
};

// Rows of the residual stream that come with the batch instead of from the embedding table: a part
// of a picture or a sound.
struct GivenRows {
  int32_t first = 0, count = 0;  // rows [first, first + count) of the step
  // Level 0: [count, model_dim] what the rows begin with. Further levels, level_stride values apart:
  // what is added to them behind the first layers.
  const float* values = nullptr;
  int64_t level_stride = 0;
};

// Rows of an encoder to which the layers of a sequence attend.
struct EncodedRows {
  int32_t seq = 0;                // of the batch
  std::span<const float> values;  // [rows, model_dim]
};

struct AttentionWatch;

// A sequence whose weights of attention to its encoder's rows are kept.
struct WatchedSequence {
  int32_t seq = 0;  // of the batch
  AttentionWatch* watch = nullptr;
};

// Position of a token on the axes of time, rows and columns (RopeParams::axes).
using AxisPosition = std::array<int32_t, 3>;

struct Batch {
  // [n_tokens]. Stand-in tokens: -1 - i is the token of result i of the previous step's draws,
  // which may still be computed.
  std::span<const TokenId> tokens;
  // [n_tokens] position for rope: the index in the sequence, unless a draft tree branches.
  std::span<const int32_t> positions;
  std::span<const int32_t> seq_offsets;  // [n_seqs + 1] into tokens
  // [n_seqs] tokens in the cache after this step
  std::span<const int32_t> seq_lens;
  std::span<const KvView> kv;  // [n_groups]
  // [n_tokens] or empty. Bit j: the token attends to new token j of its own sequence, and to all
  // older tokens. 0: causal order.
  std::span<const uint64_t> tree_masks;
  // token indices whose logits are wanted, ascending
  std::span<const int32_t> output_rows;
  // [n output rows] or empty. Number of most likely tokens whose logits are wanted; 0: all. Logits
  // of other tokens may be -infinity.
  std::span<const int32_t> row_tops;
  // [n_tokens] for encoders with token types; empty: all 0
  std::span<const int32_t> token_types;
  // [n_seqs] slot of the sequence's adapter, -1 = none; empty: all -1
  std::span<const int32_t> adapters;
  // [n_seqs] 1: the sequence is rotated by RopeParams::long_inv_freq, if the model has it; empty:
  // all 0.
  std::span<const int32_t> long_ropes;
  // [n_tokens] or empty: `positions` on all axes
  std::span<const AxisPosition> axis_positions;
  // [n_tokens] or empty. Index in the sequence behind the last token of the part of the prompt (a
  // picture) that the token belongs to: layers with KvLayerSpec::sees_parts let it see all of the
  // part. 0: the token is in none. The cache has or gets the whole part in this step.
  std::span<const int32_t> sights;
  // Ascending, disjoint; or empty.
  std::span<const GivenRows> given;
  int given_levels = 1;  // levels of each of `given`
  int given_dim = 0;     // their columns: model_dim
  // Draws from the step's logits, or empty. They are a part of the step, as if Ops::sample()
  // followed it. REQUIRES: the backend samples; no row has a mask, so that nothing is as long as
  // the vocabulary.
  std::span<const SampleRow> draws;
  std::span<SampleResult> drawn;  // [n_draws]
  // Of the sequences whose first tokens are in this step, ascending; or empty.
  std::span<const EncodedRows> encoded;
  std::span<const WatchedSequence> watched;  // ascending; or empty

  int n_tokens() const { return static_cast<int>(tokens.size()); }
  int n_seqs() const { return static_cast<int>(seq_lens.size()); }
};

}  // namespace penstock
