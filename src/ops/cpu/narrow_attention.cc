#include "ops/cpu/narrow_attention.h"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// Tokens that are widened at a time: they stay in the second-level cache.
constexpr int kWideTokens = 256;
constexpr int kWideUnits = kWideTokens / kUnitTokens;
constexpr uint32_t kInOrder[kWideUnits] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

int64_t wide_floats(const KvUnitLayout& wide) { return kWideUnits * wide.bytes / 4; }
int64_t query_floats(const KvUnitLayout& layout) {
  return int64_t{kMaxTileRows} * ((layout.head_dim + 15) / 16 * 16);
}
int64_t state_floats(const KvUnitLayout& layout, int n_rows) {
  return state_rows(n_rows) * (int64_t{2} + layout.padded_value_dim);
}

// One head of a tile.
class NarrowHead {
 public:
  NarrowHead(const AttentionKernels& kernels, const AttentionTile& tile, int head, float* scratch)
      : kernels_(kernels), layout_(*tile.layout), wide_(tile.layout->widened()), tile_(tile) {
    tile_.units += head * layout_.bytes;
    tile_.n_heads = 1;
    tile_.head_rows = tile.n_rows;
    tile_.layout = &wide_;
    units_ = reinterpret_cast<std::byte*>(scratch);
    scratch += wide_floats(wide_);
    part_ = {scratch, scratch + state_rows(tile.n_rows), scratch + 2 * state_rows(tile.n_rows)};
    scratch += state_floats(layout_, kMaxTileRows);
    const int dim = (layout_.head_dim + 15) / 16 * 16;
    const AttentionRow* from = tile.rows + int64_t{head} * tile.head_rows;
    for (int r = 0; r < tile.n_rows; ++r, scratch += dim) {
      rows_[r] = from[r];
      rows_[r].q = scratch;
      std::memcpy(scratch, from[r].q, static_cast<size_t>(layout_.head_dim) * sizeof(float));
      kernels.rotate(scratch, layout_.head_dim, layout_.rotated, false);
      first_ = std::min(first_, from[r].first);
      end_ = std::max(end_, from[r].end);
    }
    tile_.rows = rows_;
  }

  void attend(const AttentionState& state) {
    const int end = std::min(tile_.end, end_), all_begin = tile_.begin;
    bool any = false;
    for (int begin = all_begin; begin < end; begin += kWideTokens) {
      if (begin + kWideTokens <= first_) continue;
      widen(begin, std::min(begin + kWideTokens, end));
      kernels_.attend[static_cast<int>(KvFormat::kI8)](wide_tile_, any ? part_ : state);
      if (any) kernels_.merge(state, part_, tile_.n_rows, layout_.padded_value_dim);
      any = true;
    }
    if (any) return;
    wide_tile_ = tile_;  // no token is seen: the empty state
    wide_tile_.end = wide_tile_.begin;
    kernels_.attend[static_cast<int>(KvFormat::kI8)](wide_tile_, state);
  }

 private:
  const std::byte* unit_at(int token) const {
    const int unit = (token - tile_.first_position) / kUnitTokens;
    const int64_t block = tile_.block_table[unit / tile_.units_per_block];
    return tile_.units +
           (block * tile_.units_per_block + unit % tile_.units_per_block) * tile_.unit_stride;
  }

  void widen(int begin, int end) {
    const int first = std::max(begin, first_) / kUnitTokens * kUnitTokens;
    for (int token = first; token < end; token += kUnitTokens)
      kernels_.widen(layout_, wide_, unit_at(token),
                     units_ + (token - begin) / kUnitTokens * wide_.bytes);
    wide_tile_ = tile_;
    wide_tile_.units = units_;
    wide_tile_.unit_stride = wide_.bytes;
    wide_tile_.block_table = kInOrder;
    wide_tile_.units_per_block = 1;
    wide_tile_.first_position = wide_tile_.begin = begin;
    wide_tile_.end = end;
    wide_tile_.results = {};
    if (begin > tile_.begin) wide_tile_.queries = {};
  }

  const AttentionKernels& kernels_;
  const KvUnitLayout layout_, wide_;
  AttentionTile tile_, wide_tile_ = {};
  std::byte* units_;
  AttentionState part_;
  AttentionRow rows_[kMaxTileRows];
  int first_ = INT32_MAX, end_ = 0;
};

}  // namespace

int64_t narrow_scratch_floats(const KvUnitLayout& layout) {
  if (layout.format != KvFormat::kI4) return 0;
  return wide_floats(layout.widened()) + state_floats(layout, kMaxTileRows) + query_floats(layout);
}

void attend_narrow(const AttentionKernels& kernels, const AttentionTile& tile, float* scratch,
                   const AttentionState& state) {
  for (int h = 0; h < tile.n_heads; ++h) {
    const int row = h * tile.head_rows;
    NarrowHead(kernels, tile, h, scratch)
        .attend({state.max + row, state.sum + row,
                 state.out + int64_t{row} * tile.layout->padded_value_dim});
  }
}

}  // namespace penstock
