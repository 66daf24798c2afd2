// Assembles the batch of a step, one sequence after the other. Reuses its memory from step to step.
// Thread-compatible.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/group_blocks.h"
#include "ops/batch.h"
#include "ops/cache_spec.h"

namespace penstock {

// One sequence's share of a step: its tokens and draft, and the output rows that are wanted.
struct BatchPart {
  enum class Rows : uint8_t { kNone, kLast, kAll };  // which of `tokens` get an output row

  std::span<const TokenId> tokens;  // >= 1
  // tokens of the sequence that are in the cache
  int first = 0;
  // Blocks of the sequence's tokens, including those of this step: one entry for each cache group,
  // or one that all groups share. A group of states has one block, which the draft and the tokens
  // share, or one more for each node of the draft.
  std::span<const GroupBlocks> kv;
  Rows rows = Rows::kLast;
  int top = 0;  // for the last output row: Batch::row_tops
  // Draft after the tokens: node i follows node draft_parents[i], or the last token (-1). Parents
  // come before their children. Every node gets an output row. REQUIRES: rows is not kNone; in a
  // tree that is not a chain, tokens and nodes together are at most 64.
  std::span<const TokenId> draft;
  std::span<const int16_t> draft_parents;
  // Rows that replace the embeddings of tokens: `first` is an index in the sequence. Those of other
  // steps are left out.
  std::span<const GivenRows> given;
  int given_levels = 1, given_dim = 0;
  TokenId given_token = -1;  // >= 0: id of all tokens that have given rows
  // Batch::encoded of the sequence, with its first tokens only.
  std::span<const float> encoded;
  AttentionWatch* watch = nullptr;  // see Batch::watched
  // Each of `given` is a part whose tokens see each other (Batch::sights).
  bool parts_see = false;
  // Positions of the sequence's first tokens on the axes; later tokens have their position +
  // axis_delta on all of them. Empty, and 0: all axes have the position.
  std::span<const AxisPosition> axes;
  int axis_delta = 0;
  int adapter = -1;        // slot of the sequence's adapter, -1 = none
  bool long_rope = false;  // see Batch::long_ropes
};

class BatchBuilder {
 public:
  // state_group: index of the group that holds recurrent states, -1 = none.
  BatchBuilder(int n_groups, int block_size, int state_group = -1);
  explicit BatchBuilder(const CacheSpec& spec);
  // Reserves memory, so that parts within these bounds allocate nothing. max_blocks: blocks of one
  // cache group; a block counts once for every sequence that lists it.
  void reserve(int max_tokens, int max_seqs, int max_blocks);

  void clear();
  // Returns the part's first output row, or -1.
  int add(const BatchPart& part);
  // Valid until the next add() or clear().
  const Batch& build();

  int n_tokens() const { return static_cast<int>(tokens_.size()); }
  int n_rows() const { return static_cast<int>(output_rows_.size()); }

 private:
  struct Group {
    std::vector<int32_t> slots, table_offsets, first_positions;
    std::vector<BlockId> tables;
  };
  void add_draft(const BatchPart& part);
  void add_given(const BatchPart& part);
  void name_given(const BatchPart& part, size_t first_token);
  void add_axes(const BatchPart& part, size_t first);
  static void add_state(Group& group, const BatchPart& part, const GroupBlocks& kv);
  void add_places(Group& group, const GroupBlocks& kv, int first, int end) const;

  int block_size_, state_group_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, seq_offsets_, seq_lens_, output_rows_;
  std::vector<uint64_t> tree_masks_;  // [n_tokens] up to the last tree
  // [n_tokens] up to the last sequence that has axes of its own
  std::vector<AxisPosition> axes_;
  std::vector<GivenRows> given_;
  std::vector<EncodedRows> encoded_;
  std::vector<WatchedSequence> watched_;
  std::vector<int32_t> sights_;  // [n_tokens] up to the last part
  int given_levels_ = 1, given_dim_ = 0;
  std::vector<int32_t> adapters_;    // [n_seqs]
  std::vector<int32_t> long_ropes_;  // [n_seqs]
  bool has_adapters_ = false, has_long_ropes_ = false;
  // [n output rows] up to the last one that is not 0
  std::vector<int32_t> row_tops_;
  std::vector<Group> groups_;
  std::vector<KvView> views_;
  Batch batch_;
};

// Returns blocks first, first + 1, ... for n_tokens: for callers that own a whole cache.
GroupBlocks consecutive_blocks(int first, int n_tokens, int block_size);

}  // namespace penstock
