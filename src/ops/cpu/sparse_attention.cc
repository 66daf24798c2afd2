#include "ops/cpu/sparse_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/cpu/host_tensor.h"

namespace penstock {
namespace {

constexpr int64_t kMostScoreBytes = int64_t{16} << 20;  // of the tokens that are scored together
constexpr int kScoredUnits = 64;                        // of one piece of work
// Selected tokens of one piece of work, whose copies stay in the second-level cache. Results are
// merged in order, so this number is a part of them.
constexpr int kSelectedSplit = 256;
constexpr int kSplitUnits = kSelectedSplit / kUnitTokens;

// Returns an unsigned number that is ordered as the scores are.
uint32_t order_of(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // 0 for -0
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// The elements of a selection.
int32_t* indices(const Tensor& selected, int row) {
  return static_cast<int32_t*>(selected.data) + row * selected.row_stride;
}

// A new token that sees more than top_k tokens, or that comes after one.
struct SparseToken {
  int seq, token, n_old;
  int end;             // one past the last token that it sees
  uint64_t tree_mask;  // see Batch::tree_masks

  int n_visible() const { return tree_mask == 0 ? end : n_old + std::popcount(tree_mask); }
};

std::span<SparseToken> sparse_tokens(const Batch& batch, int top_k, Arena& scratch) {
  auto* all = scratch.allocate_array<SparseToken>(static_cast<size_t>(batch.n_tokens()));
  size_t n = 0;
  for (int s = 0; s < batch.n_seqs(); ++s) {
    const int first = batch.seq_offsets[s], n_new = batch.seq_offsets[s + 1] - first;
    const int n_old = batch.seq_lens[s] - n_new;
    for (int i = tokens_that_see_all(batch, s, top_k); i < n_new; ++i) {
      const uint64_t mask = batch.tree_masks.empty() ? 0 : batch.tree_masks[first + i];
      all[n++] = {s, first + i, n_old,
                  n_old + (mask != 0 ? static_cast<int>(std::bit_width(mask)) : i + 1), mask};
    }
  }
  return {all, n};
}

const uint32_t* block_table(const KvView& view, int seq) {
  return reinterpret_cast<const uint32_t*>(view.block_tables.data() + view.table_offsets[seq]);
}

// Selects blocks of tokens (SelectParams::pool) for one token, whose scores are overwritten.
void select_blocks(const SparseToken& token, float* scores, const SelectParams& params,
                   int32_t* out) {
  PENSTOCK_CHECK(token.tree_mask == 0);
  const int pool = params.pool, n_blocks = token.end / pool, k = params.top_k / pool;
  for (int b = 0; b < n_blocks; ++b) scores[b] = scores[b * pool + pool - 1];
  select_highest(scores, n_blocks, k, out);
  for (int i = 0; params.entries && i < k; ++i) out[i] = out[i] * pool + pool - 1;
  for (int i = k - 1; !params.entries && i >= 0; --i) {
    const int first = out[i] * pool;
    for (int j = 0; j < pool; ++j) out[i * pool + j] = first + j;
  }
  for (int t = n_blocks * pool, to = k * pool; !params.entries && t < token.end; ++t) out[to++] = t;
}

// The tokens that a draft's token sees, one after the other.
class VisibleTokens {
 public:
  // Moves their scores together.
  VisibleTokens(const SparseToken& token, float* scores) : n_old_(token.n_old), n_(token.end) {
    if (token.tree_mask == 0) return;
    n_ = n_old_;
    for (uint64_t left = token.tree_mask; left != 0; left &= left - 1) {
      const int place = std::countr_zero(left);
      drafts_[n_ - n_old_] = place;
      scores[n_++] = scores[n_old_ + place];
    }
    branches_ = true;
  }
  int count() const { return n_; }
  // Turns the last of k ascending indices among them into places in the sequence.
  void place(int32_t* selected, int k) const {
    for (int i = k - 1; branches_ && i >= 0 && selected[i] >= n_old_; --i)
      selected[i] = n_old_ + drafts_[selected[i] - n_old_];
  }

 private:
  int n_old_, n_;
  bool branches_ = false;
  int drafts_[64];  // places of the draft's tokens that it sees, from n_old on
};

// Selects for one token, whose scores are overwritten.
void select_for(const SparseToken& token, float* scores, int top_k, int32_t* out) {
  const VisibleTokens visible(token, scores);
  const int k = std::min(top_k, visible.count());
  select_highest(scores, visible.count(), k, out);
  visible.place(out, k);
}

// Number of tokens in the last of the blocks that n tokens make.
int open_block(int n, int block) { return (n - 1) % block + 1; }

// Selects whole blocks of tokens (SelectParams::block) for a head of one token, whose scores are
// overwritten.
void select_whole_blocks(const SparseToken& token, float* scores, const SelectParams& params,
                         int32_t* out) {
  const VisibleTokens visible(token, scores);
  const int n = visible.count(), block = params.block, k = params.top_k / block;
  const int n_blocks = (n + block - 1) / block;
  for (int b = 0; b < n_blocks; ++b)
    scores[b] = *std::max_element(scores + b * block, scores + std::min((b + 1) * block, n));
  std::fill_n(scores + n_blocks - params.n_local, params.n_local,
              std::numeric_limits<float>::infinity());
  select_highest(scores, n_blocks, k, out);
  for (int i = k - 1; i >= 0; --i) {
    const int first = out[i] * block;
    for (int j = 0; j < std::min(block, n - first); ++j) out[i * block + j] = first + j;
  }
  visible.place(out, params.top_k - block + open_block(n, block));
}

// Attention of sparse tokens: the keys of a token's selection, or of its window and its entries
// (EntryParams), are copied to units of their own, kSelectedSplit tokens at a time, over which the
// kernels of dense attention compute all heads.
class SelectedAttention {
 public:
  SelectedAttention(const AttentionContext& context, Tensor q, const Batch& batch,
                    const CpuKvCache& cache, const AttentionParams& params, Tensor out)
      : context_(context),
        q_(q),
        cache_(cache),
        params_(params),
        out_(out),
        spec_(cache.spec().layers[static_cast<size_t>(params.layer)]),
        batch_(batch),
        layout_(cache.layout(params.layer)),
        group_(params.n_heads / spec_.n_kv_heads),
        most_(params.selected_most(spec_.n_kv_heads)) {
    context.scratch.reset();
    sinks_ = data_of(params.sinks);
    tokens_ = sparse_tokens(batch, has_entries() ? 0 : most_, context.scratch);
    if (has_entries()) {
      most_ = 0;
      for (const SparseToken& token : tokens_) most_ = std::max(most_, n_selected(token));
    }
    for (size_t i = 0; i < std::size(table_); ++i) table_[i] = static_cast<uint32_t>(i);
  }

  void run() {
    if (tokens_.empty()) return;
    n_splits_ = (most_ + kSelectedSplit - 1) / kSelectedSplit;
    state_floats_ = int64_t{all_rows()} * (2 + layout_.padded_value_dim);
    const int64_t token_bytes = n_splits_ * state_floats_ * int64_t{sizeof(float)};
    const auto together = static_cast<size_t>(std::clamp<int64_t>(
        context_.most_state_bytes / token_bytes, 1, static_cast<int64_t>(tokens_.size())));
    states_ = context_.scratch.allocate_array<float>(together * static_cast<size_t>(n_splits_) *
                                                     static_cast<size_t>(state_floats_));
    const auto n_workers = static_cast<size_t>(context_.pool.size());
    scratch_ = context_.scratch.allocate_array<float>(n_workers * scratch_floats());
    units_ = context_.scratch.allocate_array<std::byte>(n_workers * units_bytes());
    for (size_t first = 0; first < tokens_.size(); first += together)
      attend(tokens_.subspan(first, std::min(together, tokens_.size() - first)));
  }

 private:
  size_t scratch_floats() const {
    return static_cast<size_t>((tile_scratch_floats(layout_.padded_dim) + 15) / 16 * 16);
  }
  size_t units_bytes() const {
    return static_cast<size_t>((kSplitUnits * layout_.bytes + 63) / 64 * 64);
  }
  bool has_entries() const { return params_.entries.ratio > 0; }
  int n_in_window(const SparseToken& token) const { return std::min(token.end, spec_.window); }
  // Number of entries that the token reads, all of them or those selected.
  int n_entries(const SparseToken& token) const {
    const int n = token.end / params_.entries.ratio, k = params_.entries.selected.cols;
    return k > 0 ? std::min(n, k) : n;
  }
  int n_selected(const SparseToken& token) const {
    if (has_entries()) return n_in_window(token) + n_entries(token);
    const int pool = params_.selected_pool, block = params_.selected_block;
    if (block > 0) return most_ - block + open_block(token.n_visible(), block);
    return std::min(most_ - (pool - 1) + token.n_visible() % pool, token.n_visible());
  }
  // Rows of a state: those of each KV head's queries, padded.
  int all_rows() const { return spec_.n_kv_heads * state_rows(group_); }
  // The state of the queries of a KV head, in a split of the i-th of the tokens that are computed
  // together.
  AttentionState state_of(size_t i, int split, int kv_head) const {
    float* memory = states_ + (static_cast<int64_t>(i) * n_splits_ + split) * state_floats_;
    const int row = kv_head * state_rows(group_);
    return {memory + row, memory + all_rows() + row,
            memory + int64_t{2} * all_rows() + int64_t{row} * layout_.padded_value_dim};
  }

  void attend(std::span<const SparseToken> tokens) {
    const auto n = static_cast<int64_t>(tokens.size());
    context_.pool.for_pieces(n * n_splits_, 1, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t item = begin; item < end; ++item) {
        const auto i = static_cast<size_t>(item / n_splits_);
        attend_split(tokens[i], i, static_cast<int>(item % n_splits_), worker);
      }
    });
    context_.pool.for_pieces(n, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i)
        finish(tokens[static_cast<size_t>(i)], static_cast<size_t>(i));
    });
  }

  // A layer of the cache, and the blocks of one sequence in it.
  struct Blocks {
    int layer;
    const uint32_t* table;
    int first;  // position of the first one's first token
  };
  Blocks blocks_of(int layer, int seq) const {
    const int group = cache_.spec().layers[static_cast<size_t>(layer)].group;
    const KvView& view = batch_.kv[static_cast<size_t>(group)];
    const bool whole = view.first_positions.empty();
    return {layer, block_table(view, seq),
            whole ? 0 : view.first_positions[static_cast<size_t>(seq)]};
  }

  // Copies one token's key to place i of `units`.
  void copy(const Blocks& from, int kv_head, int position, std::byte* units, int i) const {
    const int block_size = cache_.spec().block_size, at = position - from.first;
    const int slot = static_cast<int>(from.table[at / block_size]) * block_size + at % block_size;
    copy_unit_token(layout_, cache_.unit_of_slot(from.layer, kv_head, slot),
                    cache_.lane_of_slot(from.layer, slot), units + i / kUnitTokens * layout_.bytes,
                    i % kUnitTokens);
  }

  // Copies keys [begin, begin + n) of one head of what a token attends to, to `to`: the tokens that are
  // selected, or those of the window and the entries behind them.
  void gather(const SparseToken& token, int kv_head, int begin, int n, std::byte* to) const {
    const Blocks own = blocks_of(params_.layer, token.seq);
    if (!has_entries()) {
      const int32_t* const selected = indices(params_.selected, token.token) + begin +
                                      (params_.selected_block > 0 ? kv_head * most_ : 0);
      for (int i = 0; i < n; ++i) copy(own, kv_head, selected[i], to, i);
      return;
    }
    const EntryParams& entries = params_.entries;
    const Blocks others = blocks_of(entries.layer, token.seq);
    const int window = n_in_window(token);
    const bool chosen = token.end / entries.ratio > n_entries(token);
    const int32_t* const selected = chosen ? indices(entries.selected, token.token) : nullptr;
    for (int i = 0; i < n; ++i) {
      const int entry = begin + i - window;
      if (entry < 0) {
        copy(own, kv_head, token.end + entry, to, i);
      } else {
        const int last = chosen ? selected[entry] : (entry + 1) * entries.ratio - 1;
        copy(others, kv_head, last, to, i);
      }
    }
  }

  void attend_split(const SparseToken& token, size_t i, int split, int worker) const {
    const int begin = split * kSelectedSplit;
    const int n = std::min(kSelectedSplit, n_selected(token) - begin);
    if (n <= 0) return;
    std::byte* units = units_ + static_cast<size_t>(worker) * units_bytes();
    for (int kv_head = 0; kv_head < spec_.n_kv_heads; ++kv_head) {
      gather(token, kv_head, begin, n, units);
      attend_units(token, kv_head, {units, n}, state_of(i, split, kv_head), worker);
    }
  }

  // Gathered keys.
  struct Gathered {
    const std::byte* units;
    int n;
  };
  // Attention of the queries of one KV head, the first of which has this state.
  void attend_units(const SparseToken& token, int kv_head, Gathered keys, AttentionState state,
                    int worker) const {
    const int n = keys.n;
    AttentionTile tile = {};
    tile.n_heads = 1;
    tile.layout = &layout_;
    tile.units = keys.units;
    tile.unit_stride = layout_.bytes;
    tile.block_table = table_;
    tile.units_per_block = 1;
    tile.end = n;
    tile.scale = params_.scale;
    tile.softcap = params_.softcap;
    tile.exact_rows = context_.batch_invariant;
    tile.n_new = 1;
    tile.scratch = scratch_ + static_cast<size_t>(worker) * scratch_floats();
    AttentionRow rows[kMaxTileRows] = {};
    for (int head = 0; head < group_; head += kMaxTileRows) {
      tile.rows = rows;
      tile.n_rows = tile.head_rows = std::min(kMaxTileRows, group_ - head);
      for (int r = 0; r < tile.n_rows; ++r) {
        rows[r].q = f32(q_, token.token) + int64_t{kv_head * group_ + head + r} * spec_.head_dim;
        rows[r].end = n;
        rows[r].position = n - 1;
      }
      context_.kernels.attend[static_cast<int>(layout_.format)](
          tile, {state.max + head, state.sum + head,
                 state.out + int64_t{head} * layout_.padded_value_dim});
    }
  }

  void finish(const SparseToken& token, size_t i) const {
    for (int kv_head = 0; kv_head < spec_.n_kv_heads; ++kv_head) {
      const AttentionState state = state_of(i, 0, kv_head);
      for (int split = 1; split * kSelectedSplit < n_selected(token); ++split)
        context_.kernels.merge(state, state_of(i, split, kv_head), group_,
                               layout_.padded_value_dim);
      for (int h = 0; h < group_; ++h) {
        const int head = kv_head * group_ + h;
        const float total = total_with_sink(state.sum[h], state.max[h], sinks_, head);
        context_.kernels.scale_row(state.out + int64_t{h} * layout_.padded_value_dim, 1.0f / total,
                                   layout_.value_dim,
                                   f32(out_, token.token) + int64_t{head} * layout_.value_dim);
      }
    }
  }

  const AttentionContext& context_;
  Tensor q_;
  const CpuKvCache& cache_;
  const AttentionParams& params_;
  Tensor out_;
  const KvLayerSpec& spec_;
  const Batch& batch_;
  const KvUnitLayout& layout_;
  const int group_;  // queries of a KV head
  int most_;         // selected tokens, or tokens and entries
  std::span<SparseToken> tokens_;
  int n_splits_ = 0;
  int64_t state_floats_ = 0;
  float *states_ = nullptr, *scratch_ = nullptr;
  const float* sinks_ = nullptr;  // [n_heads] or null
  std::byte* units_ = nullptr;
  uint32_t table_[kSplitUnits] = {};  // of the copied units, one after the other
};

}  // namespace

// A radix sort that follows the k-th highest score only.
void select_highest(const float* scores, int n, int k, int32_t* out) {
  constexpr int kBits = 11, kDigits = 1 << kBits;
  uint32_t found = 0, known = 0;  // digits of that score, and the bits that they are
  int left = k;                   // scores to take of those that have these digits
  for (const int shift : {21, 10, 0}) {
    const uint32_t digits = shift == 0 ? (1u << 10) - 1 : kDigits - 1;
    int counts[kDigits] = {};
    for (int i = 0; i < n; ++i) {
      const uint32_t order = order_of(scores[i]);
      if ((order & known) == found) ++counts[order >> shift & digits];
    }
    uint32_t digit = digits;
    while (counts[digit] < left) left -= counts[digit--];
    found |= digit << shift, known |= digits << shift;
  }
  for (int i = 0; i < n; ++i) {
    const uint32_t order = order_of(scores[i]);
    if (order < found || (order == found && left-- <= 0)) continue;
    *out++ = i;
  }
}

void cpu_select(const AttentionContext& context, Tensor q, Tensor weights, const Batch& batch,
                const CpuKvCache& cache, const SelectParams& params, Tensor out) {
  const KvLayerSpec& spec = cache.spec().layers[static_cast<size_t>(params.layer)];
  PENSTOCK_CHECK(spec.n_kv_heads == 1 && spec.head_dim % 2 == 0 &&
                 q.cols == params.n_heads * spec.head_dim &&
                 (weights.cols == params.n_heads || weights.cols == 0) &&
                 out.cols == params.cols() && params.top_k % params.pool == 0);
  PENSTOCK_CHECK(params.block == 0 ||
                 (params.pool == 1 && weights.cols == 0 && params.top_k % params.block == 0 &&
                  params.n_local >= 1 && params.n_local * params.block <= params.top_k));
  const KvView& view = batch.kv[static_cast<size_t>(spec.group)];
  context.scratch.reset();
  const std::span<const SparseToken> all = sparse_tokens(batch, params.most(), context.scratch);
  if (all.empty()) return;
  int longest = 0;
  for (const SparseToken& token : all) longest = std::max(longest, token.end);
  const int n_units = (longest + kUnitTokens - 1) / kUnitTokens;
  const int64_t row = int64_t{n_units} * kUnitTokens;
  // Each selection has a row of scores.
  const int n_selections = params.n_selections(), of_heads = params.n_heads / n_selections;
  const auto together = static_cast<size_t>(
      std::clamp<int64_t>(kMostScoreBytes / (row * n_selections * int64_t{sizeof(float)}), 1,
                          static_cast<int64_t>(all.size())));
  auto* scores = context.scratch.allocate_array<float>(
      together * static_cast<size_t>(n_selections) * static_cast<size_t>(row));
  auto* ones = context.scratch.allocate_array<float>(static_cast<size_t>(params.n_heads));
  std::fill_n(ones, params.n_heads, 1.0f);
  const KvUnitLayout& layout = cache.layout(params.layer);
  const auto score = context.kernels.score[static_cast<int>(layout.format)];
  const int64_t n_pieces = (n_units + kScoredUnits - 1) / kScoredUnits;
  for (size_t first = 0; first < all.size(); first += together) {
    const auto tokens = all.subspan(first, std::min(together, all.size() - first));
    const int64_t n = static_cast<int64_t>(tokens.size()) * n_selections;
    // Neighbouring items read the same keys.
    context.pool.for_pieces(n_pieces * n, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t item = begin; item < end; ++item) {
        const SparseToken& token = tokens[static_cast<size_t>(item % n / n_selections)];
        const int unit = static_cast<int>(item / n) * kScoredUnits;
        const int last = (token.end + kUnitTokens - 1) / kUnitTokens;
        if (unit >= last) continue;
        const IndexQuery query = {
            f32(q, token.token) + item % n_selections * spec.head_dim,
            weights.cols > 0 ? f32(weights, token.token) : ones,
            of_heads,
            &layout,
            cache.units(params.layer, 0),
            cache.unit_stride(params.layer),
            block_table(view, token.seq),
            cache.units_per_block(),
            params.block > 0 ? -std::numeric_limits<float>::infinity() : 0.0f};
        score(query, unit, std::min(unit + kScoredUnits, last),
              scores + item % n * row + int64_t{unit} * kUnitTokens);
      }
    });
    context.pool.for_pieces(n, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const SparseToken& token = tokens[static_cast<size_t>(i / n_selections)];
        int32_t* const selected = indices(out, token.token) + i % n_selections * params.most();
        if (params.block > 0) {
          select_whole_blocks(token, scores + i * row, params, selected);
        } else if (params.pool > 1) {
          select_blocks(token, scores + i * row, params, selected);
        } else {
          select_for(token, scores + i * row, params.top_k, selected);
        }
      }
    });
  }
}

void cpu_attend_selected(const AttentionContext& context, Tensor q, const Batch& batch,
                         const CpuKvCache& cache, const AttentionParams& params, Tensor out) {
  const KvLayerSpec& spec = cache.spec().layers[static_cast<size_t>(params.layer)];
  const bool entries = params.entries.ratio > 0;
  PENSTOCK_CHECK(params.n_heads % spec.n_kv_heads == 0 && (spec.window > 0) == entries &&
                 !spec.both_ways && !spec.chunked && params.slopes == nullptr &&
                 params.relative.columns == nullptr);
  PENSTOCK_CHECK(!entries || (params.selected.cols == 0 && batch.tree_masks.empty()));
  SelectedAttention(context, q, batch, cache, params, out).run();
}

}  // namespace penstock
