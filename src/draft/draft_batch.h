// Builds the batches of drafters that compute: some tokens of some sequences, with the last one's logits.
#pragma once
#include <span>
#include <vector>

#include "cache/group_blocks.h"
#include "ops/batch.h"

namespace penstock {

class DraftBatch {
 public:
  explicit DraftBatch(int block_size) : block_size_(block_size) {}

  void clear();
  // `tokens` follow `n_before` tokens whose K and V are in the cache. kv: one entry per cache group, or one
  // for all of them. with_logits: the last token gets an output row.
  void add(std::span<const TokenId> tokens, int n_before, std::span<const GroupBlocks> kv, bool with_logits);
  // Valid until the next clear().
  const Batch& build(int n_groups);
  int n_tokens() const { return static_cast<int>(tokens_.size()); }
  int n_rows() const { return static_cast<int>(output_rows_.size()); }

 private:
  struct Group {
    std::vector<int32_t> slots, table_offsets, first_positions;
    std::vector<BlockId> tables;
  };
  int block_size_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, seq_offsets_, seq_lens_, output_rows_;
  std::vector<Group> groups_;
  std::vector<KvView> views_;
  Batch batch_;
};

}  // namespace penstock
