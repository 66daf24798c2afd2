// Turns a plan into the flat arrays of a Batch. Keeps its memory from step to step.
#pragma once
#include <vector>

#include "engine/scheduler.h"
#include "ops/batch.h"

namespace penstock {

class BatchBuilder {
 public:
  BatchBuilder(int n_groups, int block_size, int max_tokens, int max_seqs);

  // all_rows[i]: item i needs the logits of every token, not only of the last. An item with a draft gets rows
  // for its last own token and for every node. Valid until the next build.
  const Batch& build(const Plan& plan, std::span<const char> all_rows);
  // The first output row of item i, or -1 when it has none.
  int first_row(size_t item) const { return first_rows_[item]; }

 private:
  struct GroupArrays {
    std::vector<int32_t> slots, table_offsets, first_positions;
    std::vector<BlockId> tables;
  };
  void add_group(const ScheduledItem& item, size_t group);
  void add_draft(const ScheduledItem& item);

  int block_size_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, seq_offsets_, seq_lens_, output_rows_, first_rows_;
  std::vector<uint64_t> tree_masks_;
  bool has_trees_ = false;
  std::vector<GroupArrays> groups_;
  std::vector<KvView> views_;
  Batch batch_;
};

}  // namespace penstock
