#include "engine/batch_builder.h"

namespace penstock {

BatchBuilder::BatchBuilder(int n_groups, int block_size, int max_tokens, int max_seqs)
    : block_size_(block_size), groups_(n_groups), views_(n_groups) {
  tokens_.reserve(max_tokens);
  positions_.reserve(max_tokens);
  output_rows_.reserve(max_tokens);
  tree_masks_.reserve(max_tokens);
  seq_offsets_.reserve(max_seqs + 1);
  seq_lens_.reserve(max_seqs);
  first_rows_.reserve(max_seqs);
  for (GroupArrays& group : groups_) {
    group.slots.reserve(max_tokens);
    group.table_offsets.reserve(max_seqs + 1);
    group.first_positions.reserve(max_seqs);
    group.tables.reserve(static_cast<size_t>(max_seqs) * 64);
  }
}

void BatchBuilder::add_group(const ScheduledItem& item, size_t g) {
  GroupArrays& group = groups_[g];
  const GroupBlocks& kv = item.sequence->kv[g];
  const int first_position = kv.first_block * block_size_;
  const int end = item.first + item.count;
  const size_t used = (end - first_position + block_size_ - 1) / block_size_;
  group.tables.insert(group.tables.end(), kv.blocks.begin(),
                      kv.blocks.begin() + static_cast<ptrdiff_t>(used));
  group.table_offsets.push_back(static_cast<int32_t>(group.tables.size()));
  group.first_positions.push_back(first_position);
  for (int position = item.first; position < end; ++position) {
    const int offset = position - first_position;
    const int block = static_cast<int>(kv.blocks[offset / block_size_]);
    group.slots.push_back(block * block_size_ + offset % block_size_);
  }
}

// The nodes of an item's draft, after its own tokens. Of a chain the causal order is right as it is.
void BatchBuilder::add_draft(const ScheduledItem& item) {
  const DraftTree& tree = *item.draft;
  const int root = item.count - item.n_draft - 1;  // of the item's tokens
  const int root_position = item.first + root;
  const size_t first = tokens_.size();
  const bool chain = tree.is_chain();
  if (!chain) {
    has_trees_ = true;
    tree_masks_.resize(first, 0);
    tree_masks_.back() = (uint64_t{2} << root) - 1;
  }
  for (int node = 0; node < tree.size(); ++node) {
    output_rows_.push_back(static_cast<int32_t>(tokens_.size()));
    tokens_.push_back(tree.tokens[node]);
    positions_.push_back(root_position + (chain ? node + 1 : tree.depth(node)));
    if (chain) continue;
    const int parent = tree.parents[node];
    const uint64_t above = parent < 0 ? tree_masks_[first - 1] : tree_masks_[first + parent];
    tree_masks_.push_back(above | uint64_t{1} << (root + 1 + node));
  }
}

const Batch& BatchBuilder::build(const Plan& plan, std::span<const char> all_rows) {
  tokens_.clear(), positions_.clear(), output_rows_.clear(), first_rows_.clear();
  seq_offsets_.assign(1, 0);
  seq_lens_.clear(), tree_masks_.clear();
  has_trees_ = false;
  for (GroupArrays& group : groups_) {
    group.slots.clear(), group.tables.clear(), group.first_positions.clear();
    group.table_offsets.assign(1, 0);
  }
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const ScheduledItem& item = plan.items[i];
    const int end = item.first + item.count, own_end = end - item.n_draft;
    const bool every_row = all_rows[i] != 0;
    first_rows_.push_back(every_row || item.last ? static_cast<int32_t>(output_rows_.size()) : -1);
    for (int position = item.first; position < own_end; ++position) {
      if (every_row || (item.last && position + 1 == own_end)) {
        output_rows_.push_back(static_cast<int32_t>(tokens_.size()));
      }
      tokens_.push_back(item.sequence->tokens[position]);
      positions_.push_back(position);
    }
    if (item.n_draft > 0) add_draft(item);
    seq_offsets_.push_back(static_cast<int32_t>(tokens_.size()));
    seq_lens_.push_back(end);
    for (size_t g = 0; g < groups_.size(); ++g) add_group(item, g);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    views_[g] = {groups_[g].slots, groups_[g].tables, groups_[g].table_offsets, groups_[g].first_positions};
  }
  if (has_trees_) tree_masks_.resize(tokens_.size(), 0);
  batch_ = {tokens_, positions_, seq_offsets_, seq_lens_, views_, tree_masks_, output_rows_};
  return batch_;
}

}  // namespace penstock
