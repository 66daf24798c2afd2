#include "draft/draft_batch.h"

namespace penstock {

void DraftBatch::clear() {
  tokens_.clear(), positions_.clear(), seq_lens_.clear(), output_rows_.clear();
  seq_offsets_.assign(1, 0);
  for (Group& group : groups_) {
    group.slots.clear(), group.tables.clear(), group.first_positions.clear();
    group.table_offsets.assign(1, 0);
  }
}

void DraftBatch::add(std::span<const TokenId> tokens, int n_before, std::span<const GroupBlocks> kv,
                     bool with_logits) {
  const int end = n_before + static_cast<int>(tokens.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (int position = n_before; position < end; ++position) positions_.push_back(position);
  seq_offsets_.push_back(static_cast<int32_t>(tokens_.size()));
  seq_lens_.push_back(end);
  if (with_logits) output_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
  while (groups_.size() < kv.size()) groups_.push_back({{}, {0}, {}, {}});
  for (size_t g = 0; g < kv.size(); ++g) {
    Group& group = groups_[g];
    const GroupBlocks& blocks = kv[g];
    const int first_position = blocks.first_block * block_size_;
    const int n_used = (end - first_position + block_size_ - 1) / block_size_;
    group.tables.insert(group.tables.end(), blocks.blocks.begin(), blocks.blocks.begin() + n_used);
    group.table_offsets.push_back(static_cast<int32_t>(group.tables.size()));
    group.first_positions.push_back(first_position);
    for (int position = n_before; position < end; ++position) {
      const int offset = position - first_position;
      group.slots.push_back(static_cast<int>(blocks.blocks[offset / block_size_]) * block_size_ +
                            offset % block_size_);
    }
  }
}

const Batch& DraftBatch::build(int n_groups) {
  views_.clear();
  for (int g = 0; g < n_groups; ++g) {
    const Group& group = groups_[groups_.size() > 1 ? g : 0];
    views_.push_back({group.slots, group.tables, group.table_offsets, group.first_positions});
  }
  batch_ = {tokens_, positions_, seq_offsets_, seq_lens_, views_, {}, output_rows_};
  return batch_;
}

}  // namespace penstock
