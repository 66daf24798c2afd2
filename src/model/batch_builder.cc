#include "model/batch_builder.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {
namespace {

bool is_chain(std::span<const int16_t> parents) {
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] != static_cast<int>(i) - 1) return false;
  }
  return true;
}

AxisPosition all_axes(int32_t position) { return {position, position, position}; }

}  // namespace

BatchBuilder::BatchBuilder(int n_groups, int block_size, int state_group)
    : block_size_(block_size), state_group_(state_group), groups_(n_groups), views_(n_groups) {
  clear();
}

BatchBuilder::BatchBuilder(const CacheSpec& spec)
    : BatchBuilder(std::max(1, spec.n_groups()), spec.block_size, spec.state_group()) {}

void BatchBuilder::reserve(int max_tokens, int max_seqs, int max_blocks) {
  tokens_.reserve(max_tokens);
  positions_.reserve(max_tokens);
  output_rows_.reserve(max_tokens);
  tree_masks_.reserve(max_tokens);
  seq_offsets_.reserve(max_seqs + 1);
  seq_lens_.reserve(max_seqs);
  adapters_.reserve(max_seqs);
  long_ropes_.reserve(max_seqs);
  row_tops_.reserve(max_tokens);
  for (Group& group : groups_) {
    group.slots.reserve(max_tokens);
    group.table_offsets.reserve(max_seqs + 1);
    group.first_positions.reserve(max_seqs);
    group.tables.reserve(max_blocks);
  }
}

void BatchBuilder::clear() {
  tokens_.clear(), positions_.clear(), output_rows_.clear(), seq_lens_.clear(), tree_masks_.clear();
  adapters_.clear(), has_adapters_ = false;
  long_ropes_.clear(), has_long_ropes_ = false;
  row_tops_.clear();
  encoded_.clear(), watched_.clear();
  axes_.clear(), given_.clear(), sights_.clear(), given_levels_ = 1, given_dim_ = 0;
  seq_offsets_.assign(1, 0);
  for (Group& group : groups_) {
    group.slots.clear(), group.tables.clear(), group.first_positions.clear();
    group.table_offsets.assign(1, 0);
  }
}

int BatchBuilder::add(const BatchPart& part) {
  const int own_end = part.first + static_cast<int>(part.tokens.size());
  const int end = own_end + static_cast<int>(part.draft.size());
  const int first_row = part.rows == BatchPart::Rows::kNone ? -1 : n_rows();
  const size_t first_token = tokens_.size();
  if (!part.given.empty()) add_given(part);
  if (!part.encoded.empty() && part.first == 0)
    encoded_.push_back({static_cast<int32_t>(seq_lens_.size()), part.encoded});
  if (part.watch != nullptr)
    watched_.push_back({static_cast<int32_t>(seq_lens_.size()), part.watch});
  for (int position = part.first; position < own_end; ++position) {
    const bool last = position + 1 == own_end && part.rows == BatchPart::Rows::kLast;
    if (last || part.rows == BatchPart::Rows::kAll) output_rows_.push_back(n_tokens());
    tokens_.push_back(part.tokens[position - part.first]);
    positions_.push_back(position);
  }
  if (part.top > 0 && part.rows == BatchPart::Rows::kLast) {
    row_tops_.resize(output_rows_.size(), 0);
    row_tops_.back() = part.top;
  }
  if (part.given_token >= 0) name_given(part, first_token);
  if (!part.draft.empty()) add_draft(part);
  if (!part.axes.empty() || part.axis_delta != 0) add_axes(part, first_token);
  seq_offsets_.push_back(n_tokens());
  seq_lens_.push_back(end);
  adapters_.push_back(part.adapter);
  has_adapters_ |= part.adapter >= 0;
  long_ropes_.push_back(part.long_rope ? 1 : 0);
  has_long_ropes_ |= part.long_rope;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupBlocks& kv = part.kv[part.kv.size() > 1 ? g : 0];
    if (static_cast<int>(g) == state_group_) {
      add_state(groups_[g], part, kv);
    } else {
      add_places(groups_[g], kv, part.first, end);
    }
  }
  return first_row;
}

void BatchBuilder::name_given(const BatchPart& part, size_t first_token) {
  const int end = part.first + static_cast<int>(part.tokens.size());
  for (const GivenRows& rows : part.given) {
    for (int at = std::max(rows.first, part.first); at < std::min(rows.first + rows.count, end);
         ++at)
      tokens_[first_token + static_cast<size_t>(at - part.first)] = part.given_token;
  }
}

// Chains need no mask: the causal order suffices.
void BatchBuilder::add_draft(const BatchPart& part) {
  PENSTOCK_CHECK(part.rows != BatchPart::Rows::kNone &&
                 part.draft_parents.size() == part.draft.size());
  const auto root = static_cast<int>(part.tokens.size()) - 1;  // within the part's tokens
  const int root_position = part.first + root;
  const auto first = static_cast<int>(tokens_.size());
  const bool chain = is_chain(part.draft_parents);
  if (!chain) {
    tree_masks_.resize(first, 0);
    tree_masks_.back() = (uint64_t{2} << root) - 1;
  }
  for (size_t node = 0; node < part.draft.size(); ++node) {
    const int parent = part.draft_parents[node];
    output_rows_.push_back(n_tokens());
    tokens_.push_back(part.draft[node]);
    positions_.push_back(1 + (parent < 0 ? root_position : positions_[first + parent]));
    if (chain) continue;
    const uint64_t above = tree_masks_[parent < 0 ? first - 1 : first + parent];
    tree_masks_.push_back(above | uint64_t{1} << (root + 1 + static_cast<int>(node)));
  }
}

// Adds the part's share of its sequence's given rows. REQUIRES: its tokens are not added yet.
void BatchBuilder::add_given(const BatchPart& part) {
  PENSTOCK_CHECK(given_.empty() ||
                 (given_levels_ == part.given_levels && given_dim_ == part.given_dim));
  given_levels_ = part.given_levels, given_dim_ = part.given_dim;
  const int end = part.first + static_cast<int>(part.tokens.size());
  for (const GivenRows& rows : part.given) {
    const int from = std::max(rows.first, part.first), to = std::min(rows.first + rows.count, end);
    if (from >= to) continue;
    given_.push_back({n_tokens() + from - part.first, to - from,
                      rows.values + int64_t{from - rows.first} * given_dim_, rows.level_stride});
    if (!part.parts_see) continue;
    PENSTOCK_CHECK(rows.first + rows.count == to);
    sights_.resize(static_cast<size_t>(n_tokens() + from - part.first), 0);
    sights_.resize(static_cast<size_t>(n_tokens() + to - part.first), to);
  }
}

// Sets the axes of the part's tokens and draft, which begin at token `first` of the step. Nodes of
// a draft are as far behind the last token on all axes as they are in the sequence.
void BatchBuilder::add_axes(const BatchPart& part, size_t first) {
  for (size_t t = axes_.size(); t < first; ++t) axes_.push_back(all_axes(positions_[t]));
  for (size_t t = first; t < positions_.size(); ++t) {
    const auto position = static_cast<size_t>(positions_[t]);
    axes_.push_back(position < part.axes.size() ? part.axes[position]
                                                : all_axes(positions_[t] + part.axis_delta));
  }
}

void BatchBuilder::add_places(Group& group, const GroupBlocks& kv, int first, int end) const {
  const int first_position = kv.first_block * block_size_;
  const int n_used = (end - first_position + block_size_ - 1) / block_size_;
  group.tables.insert(group.tables.end(), kv.blocks.begin(), kv.blocks.begin() + n_used);
  group.table_offsets.push_back(static_cast<int32_t>(group.tables.size()));
  group.first_positions.push_back(first_position);
  for (int position = first; position < end; ++position)
    group.slots.push_back(slot_of(kv, position, block_size_));
}

// With enough blocks, every node of a draft has its own state, so that decoding can continue from
// any of them.
void BatchBuilder::add_state(Group& group, const BatchPart& part, const GroupBlocks& kv) {
  const bool each = !part.draft.empty() && kv.blocks.size() > part.draft.size();
  PENSTOCK_CHECK(!each || (part.tokens.size() == 1 && is_chain(part.draft_parents)));
  const auto n = static_cast<ptrdiff_t>(each ? 1 + part.draft.size() : 1);
  group.tables.insert(group.tables.end(), kv.blocks.begin(), kv.blocks.begin() + n);
  group.table_offsets.push_back(static_cast<int32_t>(group.tables.size()));
  group.first_positions.push_back(0);
}

const Batch& BatchBuilder::build() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    views_[g] = {group.slots, group.tables, group.table_offsets, group.first_positions};
  }
  if (!tree_masks_.empty()) tree_masks_.resize(tokens_.size(), 0);
  batch_ = {tokens_, positions_, seq_offsets_, seq_lens_, views_, tree_masks_, output_rows_};
  if (!row_tops_.empty()) {
    row_tops_.resize(output_rows_.size(), 0);
    batch_.row_tops = row_tops_;
  }
  if (!axes_.empty()) {
    for (size_t t = axes_.size(); t < positions_.size(); ++t)
      axes_.push_back(all_axes(positions_[t]));
    batch_.axis_positions = axes_;
  }
  if (!sights_.empty()) {
    sights_.resize(tokens_.size(), 0);
    batch_.sights = sights_;
  }
  batch_.given = given_, batch_.given_levels = given_levels_, batch_.given_dim = given_dim_;
  batch_.encoded = encoded_, batch_.watched = watched_;
  if (has_adapters_) batch_.adapters = adapters_;
  if (has_long_ropes_) batch_.long_ropes = long_ropes_;
  return batch_;
}

GroupBlocks consecutive_blocks(int first, int n_tokens, int block_size) {
  GroupBlocks kv;
  for (int i = 0; i < (n_tokens + block_size - 1) / block_size; ++i)
    kv.blocks.push_back(static_cast<BlockId>(first + i));
  return kv;
}

}  // namespace penstock
