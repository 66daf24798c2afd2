// Assembles the batch of a step, sequence by sequence. Keeps its memory from step to step.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cache/cache_spec.h"
#include "cache/group_blocks.h"
#include "ops/batch.h"

namespace penstock {

// Tokens of one sequence that a step computes, and what is wanted of them.
struct BatchPart {
  enum class Rows : uint8_t { kNone, kLast, kAll };  // which of `tokens` get an output row

  std::span<const TokenId> tokens;  // >= 1
  int first = 0;                    // tokens of the sequence that are in the cache
  // Where the sequence's tokens live, these included: one entry for each cache group, or one that is all groups'. A
  // group of states has one block, which the draft has in common with the tokens, or another for each of its nodes.
  std::span<const GroupBlocks> kv;
  Rows rows = Rows::kLast;
  int top = 0;  // of a row that is the last: as Batch::row_tops
  // Guesses after the tokens: node i follows node parents[i], or the last token (-1); a parent comes before its
  // children. Each gets an output row. REQUIRES: rows is not kNone; tokens and nodes are at most 64 in a tree that is
  // no chain.
  std::span<const TokenId> draft;
  std::span<const int16_t> draft_parents;
  int adapter = -1;        // slot of the sequence's adapter, -1 = none
  bool long_rope = false;  // as Batch::long_ropes
};

class BatchBuilder {
 public:
  // state_group: the group that holds states, -1 = none.
  BatchBuilder(int n_groups, int block_size, int state_group = -1);
  explicit BatchBuilder(const CacheSpec& spec);
  // So that parts within these bounds need no further memory. max_blocks is of a cache group, each counted as often
  // as sequences list it.
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
  static void add_state(Group& group, const BatchPart& part, const GroupBlocks& kv);
  void add_places(Group& group, const GroupBlocks& kv, int first, int end) const;

  int block_size_, state_group_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, seq_offsets_, seq_lens_, output_rows_;
  std::vector<uint64_t> tree_masks_;  // [n_tokens] as far as there are trees
  std::vector<int32_t> adapters_;     // [n_seqs]
  std::vector<int32_t> long_ropes_;   // [n_seqs]
  bool has_adapters_ = false, has_long_ropes_ = false;
  std::vector<int32_t> row_tops_;  // [n output rows] as far as any is not 0
  std::vector<Group> groups_;
  std::vector<KvView> views_;
  Batch batch_;
};

// Blocks first, first + 1, ... for n_tokens: where somebody has a cache for himself.
GroupBlocks consecutive_blocks(int first, int n_tokens, int block_size);

}  // namespace penstock
