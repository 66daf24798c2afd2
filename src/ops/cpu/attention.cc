#include "ops/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>

#include "base/check.h"
#include "ops/cpu/host_tensor.h"

namespace penstock {
namespace {

// In batch-invariant mode contexts are always cut here; otherwise only where threads would idle.
constexpr int kInvariantSplit = 4096;
constexpr int kMinSplit = 256;
// If a sink exceeds all scores by this much, the weights of all tokens are zero, and so is the
// row's output.
constexpr float kMostSinkExponent = 87.0f;
constexpr int kMaxSharedFloats =
    8192;  // of the sums of all heads of a tile: they stay in the first-level cache

// Rows that share one pass over KV heads: (token, head of the group) pairs of one sequence, token
// by token. All rows of a sequence and several heads where they are few, so that memory is read in
// long pieces.
struct Tile {
  int seq, kv_head, n_heads;
  int row, n_rows;      // of the sequence's n_tokens * group rows, the same of each head
  int head_rows;        // from one head's rows to the next one's
  int begin, end;       // tokens some row sees; begin is a multiple of kChunkTokens
  int split, n_splits;  // tokens per split
  std::atomic<int>* unfinished;
  float* states;  // n_splits states, when there are several
};

int64_t units_of(int n_rows) { return (int64_t{n_rows} + kUnitTokens - 1) / kUnitTokens; }

struct Item {
  int tile, split;  // split kAllSplits: all of them, in order
};
constexpr int kAllSplits = -1;

// Where keys and values lie: units of all heads, one unit after the other, in blocks.
struct KvPlaces {
  const KvLayerSpec* spec;
  const KvView* view;
  const KvUnitLayout* layout;
  const std::byte* units;  // of block 0
  int units_per_block;
  int n_encoded = 0;  // > 0: all queries of a sequence see so many rows of an encoder
};

class Attention {
 public:
  Attention(const AttentionContext& context, Tensor q, const Batch& batch, const KvPlaces& places,
            const AttentionParams& params, Tensor out)
      : context_(context),
        q_(q),
        batch_(batch),
        places_(places),
        params_(params),
        out_(out),
        spec_(places.spec),
        view_(places.view),
        layout_(places.layout) {
    group_ = params.n_heads / spec_->n_kv_heads;
    slopes_ = data_of(params.slopes);
    sinks_ = data_of(params.sinks);
  }

  void run() {
    context_.scratch.reset();
    plan();
    const int n_workers = context_.pool.size();
    const int64_t scratch_floats = tile_scratch_floats(layout_->padded_dim) +
                                   2 * state_floats(kMaxTileRows) + rotated_floats();
    auto* scratch =
        context_.scratch.allocate_array<float>(static_cast<size_t>(scratch_floats * n_workers));
    std::atomic<int> next{0};
    const auto take = [&] { return next.fetch_add(1, std::memory_order_relaxed); };
    const auto work = [&](int worker, int) {
      for (int i = take(), following = 0; i < n_items_; i = following) {
        // The next item is taken early, so that its queries can be fetched; not towards the end,
        // where another thread may be idle.
        const bool early = i + 4 * n_workers < n_items_;
        if (early) following = take();
        run_item(items_[i],
                 early && following < n_items_ ? &tiles_[items_[following].tile] : nullptr,
                 scratch + scratch_floats * worker);
        if (!early) following = take();
      }
    };
    if (n_items_ <= 1) {
      work(0, 1);
    } else {
      context_.pool.run(work);
    }
  }

 private:
  static int all_rows(const Tile& tile) { return tile.n_heads * tile.head_rows; }
  int64_t state_floats(const Tile& tile) const { return state_floats(all_rows(tile)); }
  int64_t state_floats(int n_rows) const {
    return state_rows(n_rows) * (int64_t{2} + layout_->padded_value_dim);
  }
  AttentionState state_at(float* memory, int n_rows) const {
    return {memory, memory + state_rows(n_rows), memory + 2 * state_rows(n_rows)};
  }

  // Floats of memory for the rotated queries of a tile.
  int rotated_dim() const { return (layout_->head_dim + 15) / 16 * 16; }
  int64_t rotated_floats() const {
    return layout_->format == KvFormat::kI4 ? int64_t{kMaxTileRows} * rotated_dim() : 0;
  }
  // Rotates a tile's queries as the cache's keys are.
  void rotate_queries(const Tile& tile, AttentionRow* rows, float* to) const {
    for (int h = 0; h < tile.n_heads; ++h) {
      for (int r = 0; r < tile.n_rows; ++r, to += rotated_dim()) {
        AttentionRow& row = rows[h * tile.head_rows + r];
        std::memcpy(to, row.q, static_cast<size_t>(layout_->head_dim) * sizeof(float));
        context_.kernels.rotate(to, layout_->head_dim, layout_->rotated, false);
        row.q = to;
      }
    }
  }

  // Returns the query row `row` of a sequence: token row / group_, head row % group_ of the KV
  // head.
  AttentionRow row_of(int seq, int kv_head, int row) const {
    const int token = batch_.seq_offsets[seq] + row / group_;
    const int n_new = batch_.seq_offsets[seq + 1] - batch_.seq_offsets[seq];
    const int n_old = batch_.seq_lens[seq] - n_new;
    const uint64_t mask = batch_.tree_masks.empty() ? 0 : batch_.tree_masks[token];
    AttentionRow result = {};
    result.q =
        f32(q_, token) + static_cast<ptrdiff_t>(kv_head * group_ + row % group_) * spec_->head_dim;
    const int index = n_old + row / group_;  // of the token in the sequence
    if (places_.n_encoded > 0) {
      result.end = places_.n_encoded;
      return result;
    }
    const int position = mask != 0 ? batch_.positions[token] : index;
    result.first = first_visible(position);
    result.end = mask != 0           ? n_old + 64 - __builtin_clzll(mask)
                 : spec_->both_ways  ? last_visible(seq, position) + 1
                 : spec_->sees_parts ? std::max(index + 1, sight_of(token))
                                     : index + 1;
    result.tree_begin = n_old;
    result.tree_mask = mask;
    result.position = position;
    if (mask != 0) hide_ancestors(result);
    const int head = kv_head * group_ + row % group_;
    if (slopes_ != nullptr) result.slope = slopes_[head];
    if (params_.relative.columns != nullptr)
      set_terms(token, batch_.seq_offsets[seq] - n_old, head, result);
    return result;
  }

  // first: row that the sequence's first token has, or would have, in the step's tensors.
  void set_terms(int token, int first, int head, AttentionRow& row) const {
    const RelativeTerms& terms = params_.relative;
    const int column = head * terms.n_columns;
    if (terms.table != nullptr) row.of_query = data_of(terms.table) + column;
    if (terms.of_query.cols > 0) row.of_query = f32(terms.of_query, token) + column;
    if (terms.of_key.cols > 0) row.of_key = f32(terms.of_key, first) + column;
  }

  // Nodes of a draft tree are stored after others of the same depth, so the start of a window
  // within the draft is counted in depth: that many ancestors are masked.
  static void hide_ancestors(AttentionRow& row) {
    for (; row.first > row.tree_begin; --row.first, --row.position)
      row.tree_mask &= row.tree_mask - 1;
  }

  int first_visible(int position) const {
    if (spec_->window == 0) return 0;
    return spec_->chunked ? position / spec_->window * spec_->window
                          : std::max(0, position + 1 - spec_->window);
  }

  int last_visible(int seq, int position) const {
    const int last = batch_.seq_lens[seq] - 1;
    return spec_->window == 0 ? last : std::min(last, position + spec_->window - 1);
  }

  // Returns how many keys the sequence has.
  int length_of(int seq) const {
    return places_.n_encoded > 0 ? places_.n_encoded : batch_.seq_lens[seq];
  }

  int sight_of(int token) const { return batch_.sights.empty() ? 0 : batch_.sights[token]; }

  int first_position(int seq) const {
    return view_->first_positions.empty() ? 0 : view_->first_positions[seq];
  }

  int n_rows_of(int seq) const {
    if (params_.selected.cols > 0)
      return tokens_that_see_all(batch_, seq, params_.selected_most(spec_->n_kv_heads)) * group_;
    return (batch_.seq_offsets[seq + 1] - batch_.seq_offsets[seq]) * group_;
  }

  // Rows per tile: all heads of a token together, and as many tokens as leaves every thread some
  // tiles.
  int rows_per_tile() const {
    const int64_t rows = int64_t{batch_.n_tokens()} * params_.n_heads;
    int most = kMaxTileRows;
    while (most > 16 && rows < int64_t{4} * most * context_.pool.size()) most /= 2;
    return std::min(kMaxTileRows, std::max(group_, most / group_ * group_));
  }

  // KV heads that share a tile of few rows: as many as still give every thread a few tiles.
  int heads_per_tile() const {
    int most = spec_->n_kv_heads;
    const auto n_items = [&] {
      const int cut = context_.batch_invariant ? kInvariantSplit : kMinSplit;
      int64_t items = 0;
      for (int s = 0; s < batch_.n_seqs(); ++s) items += (length_of(s) + cut - 1) / cut;
      return items * ((spec_->n_kv_heads + most - 1) / most);
    };
    while (most > 1 && n_items() < 2 * context_.pool.size()) most = (most + 1) / 2;
    return most;
  }
  int heads_of_tile(int n_rows, int most) const {
    if (n_rows == 0 || n_rows > kMaxSharedRows) return 1;
    const int rows = std::min(kMaxTileRows, kMaxSharedFloats / layout_->padded_value_dim);
    return std::max(1, std::min(most, rows / padded_head_rows(n_rows)));
  }

  void plan() {
    const int per_tile = rows_per_tile(), most_heads = heads_per_tile();
    int n_tiles = 0;
    for (int s = 0; s < batch_.n_seqs(); ++s) {
      n_tiles += (n_rows_of(s) + per_tile - 1) / per_tile * spec_->n_kv_heads;
    }
    tiles_ = context_.scratch.allocate_array<Tile>(n_tiles);
    int n = 0;
    for (int s = 0; s < batch_.n_seqs(); ++s) {
      const int n_rows = n_rows_of(s), n_heads = heads_of_tile(n_rows, most_heads);
      // Heads are processed one after the other, so that K and V of a head stay in the cache. The
      // last rows attend to the most tokens and go first, so that no thread ends with a long tile.
      for (int head = 0; head < spec_->n_kv_heads; head += n_heads) {
        for (int row = (n_rows - 1) / per_tile * per_tile; n_rows > 0 && row >= 0;
             row -= per_tile) {
          tiles_[n++] = make_tile(s, head, std::min(n_heads, spec_->n_kv_heads - head), row,
                                  std::min(per_tile, n_rows - row));
        }
      }
    }
    split_tiles(n);
  }

  Tile make_tile(int seq, int kv_head, int n_heads, int row, int n_rows) const {
    Tile tile = {};
    tile.seq = seq;
    tile.kv_head = kv_head;
    tile.n_heads = n_heads;
    tile.row = row;
    tile.n_rows = n_rows;
    tile.head_rows = n_heads > 1 ? padded_head_rows(n_rows) : n_rows;
    tile.begin = length_of(seq);
    for (int r = row; r < row + n_rows; ++r) {
      const AttentionRow bounds = row_of(seq, kv_head, r);
      tile.begin = std::min(tile.begin, bounds.first);
      tile.end = std::max(tile.end, bounds.end);
    }
    tile.begin = std::max(tile.begin, first_position(seq)) / kChunkTokens * kChunkTokens;
    return tile;
  }

  void split_tiles(int n_tiles) {
    int64_t work = 0;
    for (int i = 0; i < n_tiles; ++i)
      work += int64_t{tiles_[i].end - tiles_[i].begin} * tiles_[i].n_heads;
    // Enough items that the threads end at about the same time.
    const int64_t wanted_work = work / (int64_t{4} * context_.pool.size()) + 1;
    int n_splits = 0;  // of all tiles
    int64_t state_bytes = 0;
    for (int i = 0; i < n_tiles; ++i) {
      Tile& tile = tiles_[i];
      if (context_.batch_invariant) {
        tile.split = kInvariantSplit;
        tile.begin = tile.begin / kInvariantSplit * kInvariantSplit;
      } else {
        const int64_t wanted = wanted_work / tile.n_heads + 1;
        tile.split = static_cast<int>(std::max<int64_t>(
            kMinSplit, (wanted + kChunkTokens - 1) / kChunkTokens * kChunkTokens));
      }
      tile.n_splits = std::max(1, (tile.end - tile.begin + tile.split - 1) / tile.split);
      n_splits += tile.n_splits;
      if (tile.n_splits > 1)
        state_bytes += state_floats(tile) * tile.n_splits * int64_t{sizeof(float)};
    }
    if (state_bytes > context_.most_state_bytes) {
      items_ = context_.scratch.allocate_array<Item>(n_tiles);
      for (n_items_ = 0; n_items_ < n_tiles; ++n_items_) items_[n_items_] = {n_items_, kAllSplits};
    } else {
      make_items(n_tiles, n_splits);
    }
  }

  void make_items(int n_tiles, int n_splits) {
    items_ = context_.scratch.allocate_array<Item>(n_splits);
    n_items_ = 0;
    for (int i = 0; i < n_tiles; ++i) {
      Tile& tile = tiles_[i];
      for (int split = 0; split < tile.n_splits; ++split) items_[n_items_++] = {i, split};
      if (tile.n_splits == 1) continue;
      tile.states = context_.scratch.allocate_array<float>(
          static_cast<size_t>(state_floats(tile) * tile.n_splits));
      tile.unfinished =
          new (context_.scratch.allocate(sizeof(std::atomic<int>))) std::atomic<int>(tile.n_splits);
    }
  }

  // `from` holds the values of a tile's rows; several heads' are not described.
  SoonNeeded needed(const Tile& tile, Tensor from, int head_dim) const {
    if (tile.n_heads > 1) return {};
    const int first = tile.row / group_, last = (tile.row + tile.n_rows - 1) / group_;
    const float* begin = f32(from, batch_.seq_offsets[tile.seq] + first) +
                         static_cast<ptrdiff_t>(tile.kv_head) * group_ * head_dim;
    return {reinterpret_cast<const std::byte*>(begin), from.row_stride * int64_t{sizeof(float)},
            int64_t{group_} * head_dim * int64_t{sizeof(float)}, last + 1 - first};
  }

  // Then a tile of `following`, if there is one, is next.
  void run_item(const Item& item, const Tile* following, float* scratch) const {
    const Tile& tile = tiles_[item.tile];
    AttentionRow rows[kMaxTileRows];
    for (int h = 0; h < tile.n_heads; ++h) {
      for (int r = 0; r < tile.n_rows; ++r)
        rows[h * tile.head_rows + r] = row_of(tile.seq, tile.kv_head + h, tile.row + r);
    }
    float* own = scratch + tile_scratch_floats(layout_->padded_dim);
    if (layout_->format == KvFormat::kI4)
      rotate_queries(tile, rows, own + 2 * state_floats(kMaxTileRows));
    if (item.split == kAllSplits || tile.n_splits == 1) {
      const AttentionState total = state_at(own, all_rows(tile));
      const AttentionState part = state_at(own + state_floats(kMaxTileRows), all_rows(tile));
      for (int split = 0; split < tile.n_splits; ++split) {
        attend_split(tile, split, rows, following, scratch, split == 0 ? total : part);
        if (split > 0) merge(tile, total, part);
      }
      return finish(tile, total);
    }
    const auto state_of = [&](int split) {
      return state_at(tile.states + split * state_floats(tile), all_rows(tile));
    };
    attend_split(tile, item.split, rows, following, scratch, state_of(item.split));
    // The thread that finishes last merges the splits, always in the same order.
    if (tile.unfinished->fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    for (int split = 1; split < tile.n_splits; ++split) {
      merge(tile, state_of(0), state_of(split));
    }
    finish(tile, state_of(0));
  }

  AttentionState state_of_head(const Tile& tile, const AttentionState& state, int h) const {
    const int row = h * tile.head_rows;
    return {state.max + row, state.sum + row,
            state.out + static_cast<int64_t>(row) * layout_->padded_value_dim};
  }

  void merge(const Tile& tile, const AttentionState& state, const AttentionState& other) const {
    for (int h = 0; h < tile.n_heads; ++h) {
      context_.kernels.merge(state_of_head(tile, state, h), state_of_head(tile, other, h),
                             tile.n_rows, layout_->padded_value_dim);
    }
  }

  void attend_split(const Tile& tile, int split, const AttentionRow* rows, const Tile* following,
                    float* scratch, const AttentionState& state) const {
    AttentionTile job = {};
    job.rows = rows;
    job.n_rows = tile.n_rows;
    job.n_heads = tile.n_heads;
    job.head_rows = tile.head_rows;
    job.layout = layout_;
    job.units = places_.units + tile.kv_head * layout_->bytes;
    job.unit_stride = spec_->n_kv_heads * layout_->bytes;
    job.block_table = reinterpret_cast<const uint32_t*>(view_->block_tables.data() +
                                                        view_->table_offsets[tile.seq]);
    job.first_position = first_position(tile.seq);
    job.units_per_block = places_.units_per_block;
    job.begin = tile.begin + split * tile.split;
    job.end = std::min(tile.end, job.begin + tile.split);
    job.scale = params_.scale;
    job.softcap = params_.softcap;
    const RelativeTerms& terms = params_.relative;
    job.has_terms = slopes_ != nullptr || terms.columns != nullptr;
    job.columns = data_of(terms.columns);
    job.reach = terms.columns != nullptr ? terms.columns->size() / 2 : 0;
    job.key_stride = terms.of_key.row_stride;
    job.exact_rows = context_.batch_invariant;
    job.n_new = batch_.seq_offsets[tile.seq + 1] - batch_.seq_offsets[tile.seq];
    job.scratch = scratch;
    if (following != nullptr) job.queries = needed(*following, q_, layout_->head_dim);
    if (split + 1 == tile.n_splits) job.results = needed(tile, out_, layout_->value_dim);
    context_.kernels.attend[static_cast<int>(layout_->format)](job, state);
  }

  void finish(const Tile& tile, const AttentionState& state) const {
    for (int i = 0; i < tile.n_heads * tile.n_rows; ++i) {
      const int h = i / tile.n_rows, r = h * tile.head_rows + i % tile.n_rows;
      const int row = tile.row + i % tile.n_rows, head = (tile.kv_head + h) * group_ + row % group_;
      const int token = batch_.seq_offsets[tile.seq] + row / group_;
      float* to = f32(out_, token) + static_cast<ptrdiff_t>(head) * layout_->value_dim;
      context_.kernels.scale_row(state.out + static_cast<int64_t>(r) * layout_->padded_value_dim,
                                 1.0f / total_of(state, r, head, token), layout_->value_dim, to);
      if (layout_->format == KvFormat::kI4)
        context_.kernels.rotate(to, layout_->value_dim, layout_->rotated_values, true);
    }
  }

  // The sum of a row's weights in units of its state, with that of the head's sink.
  float total_of(const AttentionState& state, int row, int head, int token) const {
    const float* const own =
        params_.token_sinks.cols > 0 ? f32(params_.token_sinks, token) : sinks_;
    return total_with_sink(state.sum[row], state.max[row], own, head);
  }

  const AttentionContext& context_;
  Tensor q_;
  const Batch& batch_;
  const KvPlaces places_;
  const AttentionParams& params_;
  Tensor out_;
  const KvLayerSpec* spec_;
  const KvView* view_;
  const KvUnitLayout* layout_;
  int group_;
  const float *slopes_ = nullptr, *sinks_ = nullptr;  // [n_heads] or null
  Tile* tiles_ = nullptr;
  Item* items_ = nullptr;
  int n_items_ = 0;
};

}  // namespace

float total_with_sink(float sum, float max, const float* sinks, int head) {
  if (sinks == nullptr) return sum;
  return sum + std::exp(std::min(sinks[head] - max, kMostSinkExponent));
}

int tokens_that_see_all(const Batch& batch, int seq, int top_k) {
  const int first = batch.seq_offsets[seq], n_new = batch.seq_offsets[seq + 1] - first;
  const int n_old = batch.seq_lens[seq] - n_new;
  if (batch.tree_masks.empty()) return std::clamp(top_k - n_old, 0, n_new);
  int n = 0;
  while (n < n_new) {
    const uint64_t mask = batch.tree_masks[first + n];
    if (n_old + (mask != 0 ? std::popcount(mask) : n + 1) > top_k) break;
    ++n;
  }
  return n;
}

void cpu_attend(const AttentionContext& context, Tensor q, const Batch& batch,
                const CpuKvCache& cache, const AttentionParams& params, Tensor out) {
  const KvLayerSpec& spec = cache.spec().layers[params.layer];
  PENSTOCK_CHECK(q.cols == params.n_heads * spec.head_dim &&
                 out.cols == params.n_heads * spec.value_dim());
  PENSTOCK_CHECK(params.n_heads % spec.n_kv_heads == 0);
  const KvPlaces places{&spec, &batch.kv[spec.group], &cache.layout(params.layer),
                        cache.units(params.layer, 0), cache.units_per_block()};
  Attention(context, q, batch, places, params, out).run();
}

namespace {

KvUnitLayout encoded_layout(const EncodedParams& params, const CpuKvCache& cache) {
  const bool wide = cache.spec().state_dtype == StateDType::kF32;
  const KvUnitLayout layout =
      KvUnitLayout::make(wide ? KvFormat::kF32 : KvFormat::kBF16, params.head_dim);
  PENSTOCK_CHECK(units_of(params.n_rows) * params.n_heads * layout.bytes <=
                 cache.spec().state_bytes(static_cast<size_t>(params.layer)));
  return layout;
}

}  // namespace

// Lanes behind the last row are zeros: kernels multiply them by weights of zero.
void cpu_store_encoded(const AttentionContext& context, Tensor k, Tensor v, const Batch& batch,
                       int seq, const EncodedParams& params, CpuKvCache& cache) {
  const KvUnitLayout layout = encoded_layout(params, cache);
  const KvView& view = batch.kv[static_cast<size_t>(cache.spec().state_group())];
  const BlockId block =
      view.block_tables[static_cast<size_t>(view.table_offsets[static_cast<size_t>(seq)])];
  std::byte* const units = cache.state(params.layer, block);
  const auto store = context.kernels.store[static_cast<int>(layout.format)];
  context.pool.for_ranges(units_of(params.n_rows), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t unit = begin; unit < end; ++unit) {
      std::byte* const first = units + unit * params.n_heads * layout.bytes;
      std::fill_n(first, params.n_heads * layout.bytes, std::byte{});
      const int64_t last = std::min<int64_t>((unit + 1) * kUnitTokens, params.n_rows);
      for (auto row = static_cast<int>(unit * kUnitTokens); row < last; ++row) {
        for (int h = 0; h < params.n_heads; ++h) {
          const ptrdiff_t at = static_cast<ptrdiff_t>(h) * params.head_dim;
          store(layout, f32(k, row) + at, f32(v, row) + at, first + h * layout.bytes,
                row % kUnitTokens);
        }
      }
    }
  });
}

void cpu_attend_encoded(const AttentionContext& context, Tensor q, const Batch& batch,
                        const EncodedParams& params, const CpuKvCache& cache, Tensor out) {
  KvLayerSpec spec;
  spec.n_kv_heads = params.n_heads, spec.head_dim = params.head_dim;
  const KvUnitLayout layout = encoded_layout(params, cache);
  AttentionParams attention;
  attention.n_heads = params.n_heads, attention.scale = params.scale;
  const KvPlaces places{&spec,
                        &batch.kv[static_cast<size_t>(cache.spec().state_group())],
                        &layout,
                        cache.state(params.layer, BlockId(0)),
                        static_cast<int>(units_of(params.n_rows)),
                        params.n_rows};
  Attention(context, q, batch, places, attention, out).run();
}

}  // namespace penstock
