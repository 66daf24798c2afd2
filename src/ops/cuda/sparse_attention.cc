#include "ops/cuda/sparse_attention.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/cuda_cache.h"
#include "ops/cuda/tensors.h"

namespace penstock::cuda {
namespace {

// Of the scores of rows that are computed together.
constexpr int64_t kMostScoreBytes = int64_t{64} << 20, kMostSumBytes = int64_t{128} << 20;
constexpr int kMostKept = 1 << 15;    // scores of a selection that stay in shared memory
constexpr int kManyScores = 1 << 14;  // are selected from by blocks of 1,024 threads

int ceil_div(int64_t n, int64_t by) { return static_cast<int>((n + by - 1) / by); }

}  // namespace

void* SharedScratch::take_bytes(size_t bytes) {
  if (data_ != nullptr && bytes <= bytes_ && end_ <= memory_.taken()) return data_;
  const Result<void*> taken = memory_.take(bytes);
  if (!taken) device_.give_up(taken.error());
  data_ = taken.value_or(nullptr), bytes_ = bytes, end_ = memory_.taken();
  return data_;
}

IndexOnDevice SparseAttention::index_of(Tensor q, Tensor weights, const KvCache& cache,
                                        const SelectParams& params) const {
  const KvLayerSpec& spec = cache.spec().layers[static_cast<size_t>(params.layer)];
  PENSTOCK_CHECK(spec.n_kv_heads == 1 && q.cols == params.n_heads * spec.head_dim &&
                 (weights.cols == params.n_heads || weights.cols == 0) &&
                 params.top_k % params.pool == 0);
  PENSTOCK_CHECK(params.block == 0 ||
                 (params.pool == 1 && weights.cols == 0 && params.top_k % params.block == 0 &&
                  params.n_local >= 1 && params.n_local * params.block <= params.top_k));
  IndexOnDevice index{};
  index.q = rows_of(q);
  if (weights.cols > 0) index.weights = rows_of(weights);
  index.layer = static_cast<const CudaKvCache&>(cache).layer(params.layer);
  index.group = spec.group, index.batch = upload_.on_device();
  index.n_heads = params.n_heads, index.top_k = params.top_k, index.pool = params.pool;
  index.block = params.block, index.n_local = params.n_local, index.entries = params.entries;
  index.most = params.most(), index.n_selections = params.n_selections();
  index.stride = ceil_div(upload_.length_room(), params.pool);
  return index;
}

// Neighbouring rows share the copy of keys in a block, as long as there are enough blocks.
void SparseAttention::score(const IndexOnDevice& index) {
  const auto by_products = [&]<KvCode kCode>() {
    using K = ScoreKeys<kCode>;
    const int tiles = ceil_div(index.stride, K::kKeys), wanted = 4 * device_.n_multiprocessors();
    const auto tokens =
        static_cast<int>(std::clamp<int64_t>(int64_t{index.n_rows} * tiles / wanted, 1, 16));
    device_.launch(K{index, tokens}, Grid{ceil_div(index.n_rows, tokens), tiles,
                                          K::shared_bytes(index.layer.head_dim)});
  };
  const bool fits =
      ScoreKeys<KvCode::kF16>::shared_bytes(index.layer.head_dim) <= device_.most_shared_bytes();
  if (!fits || !ScoreKeys<KvCode::kF16>::suits(index.layer)) {
    using K = ScoreKeysOneByOne;
    return device_.launch(K{index}, Grid{index.n_rows, ceil_div(index.stride, K::kKeys)});
  }
  index.layer.code == KvCode::kBF16 ? by_products.operator()<KvCode::kBF16>()
                                    : by_products.operator()<KvCode::kF16>();
}

template <int kThreads>
void SparseAttention::pick(const IndexOnDevice& index, int n_candidates, Tensor out) {
  using K = SelectHighest<kThreads>;
  K kernel{index, static_cast<int32_t*>(out.data), out.row_stride, 0};
  const int room = (device_.most_shared_bytes() - K::kScratch) / static_cast<int>(sizeof(float));
  kernel.kept = std::min({n_candidates, room, kMostKept});
  device_.launch(kernel, Grid{index.n_rows, index.n_selections, kernel.shared_bytes()});
}

void SparseAttention::select(Tensor q, Tensor weights, const KvCache& cache,
                             const SelectParams& params, Tensor out) {
  IndexOnDevice index = index_of(q, weights, cache, params);
  PENSTOCK_CHECK(out.cols == params.cols() && out.rows == q.rows);
  if (upload_.length_room() <= index.most) return;  // all tokens see all
  const int64_t of_row = index.stride * index.n_selections;
  const auto together = static_cast<int>(std::clamp<int64_t>(
      kMostScoreBytes / (of_row * int64_t{sizeof(float)}), 1, std::max(q.rows, 1)));
  index.scores = scratch_.take<float>(static_cast<size_t>(together * of_row));
  if (index.scores == nullptr) return;
  const int n_candidates =
      params.block > 0 ? ceil_div(index.stride, params.block) : static_cast<int>(index.stride);
  for (int first = 0; first < q.rows; first += together) {
    index.first_row = first, index.n_rows = std::min(together, q.rows - first);
    score(index);
    n_candidates >= kManyScores ? pick<1024>(index, n_candidates, out)
                                : pick<256>(index, n_candidates, out);
  }
}

// Dense kernels compute steps whose tokens see no more than may be selected, unless bits would depend
// on how long the others are.
bool SparseAttention::takes(const KvCache& cache, const AttentionParams& params) const {
  if (params.entries.ratio > 0) return true;
  if (params.selected.cols == 0) return false;
  const KvLayerSpec& spec = cache.spec().layers[static_cast<size_t>(params.layer)];
  return invariant_ || upload_.length_room() > params.selected_most(spec.n_kv_heads);
}

ChosenOnDevice SparseAttention::chosen_of(const KvCache& cache,
                                          const AttentionParams& params) const {
  const KvLayerSpec& spec = cache.spec().layers[static_cast<size_t>(params.layer)];
  const EntryParams& entries = params.entries;
  const Tensor& selected = entries.ratio > 0 ? entries.selected : params.selected;
  PENSTOCK_CHECK((spec.window > 0) == (entries.ratio > 0) && !spec.both_ways && !spec.chunked &&
                 params.slopes == nullptr && params.relative.columns == nullptr);
  ChosenOnDevice chosen{};
  if (selected.cols > 0) {
    chosen.selected = static_cast<const int32_t*>(selected.data);
    chosen.stride = selected.row_stride;
  }
  chosen.most = entries.ratio > 0 ? selected.cols : params.selected_most(spec.n_kv_heads);
  chosen.pool = params.selected_pool, chosen.block = params.selected_block;
  if (entries.ratio == 0) return chosen;
  const KvLayerSpec& other = cache.spec().layers[static_cast<size_t>(entries.layer)];
  PENSTOCK_CHECK(other.head_dim == spec.head_dim && other.n_kv_heads == spec.n_kv_heads &&
                 other.value_dim() == spec.value_dim() && params.selected.cols == 0);
  chosen.ratio = entries.ratio, chosen.entries_group = other.group;
  chosen.entries = static_cast<const CudaKvCache&>(cache).layer(entries.layer);
  return chosen;
}

int SparseAttention::longest_list(const ChosenOnDevice& chosen, int window) const {
  if (chosen.ratio == 0) return chosen.most;
  const int n_entries = upload_.length_room() / chosen.ratio;
  return window + (chosen.selected != nullptr ? std::min(chosen.most, n_entries) : n_entries);
}

// A few rows are taken apart, whose sums of pieces are joined; of many there are enough blocks without.
template <class Pieces, class Whole>
void SparseAttention::attend_by(const AttentionOnDevice& attention, const ChosenOnDevice& chosen,
                                int head_tiles, int shared_bytes) {
  constexpr int kPiece = Whole::kPiece, kEnoughBlocks = 128;
  const int rows = attention.q.rows, n_kv_heads = attention.layer.n_kv_heads;
  const int heads = n_kv_heads * head_tiles;
  const int n_pieces = ceil_div(longest_list(chosen, attention.window), kPiece);
  const auto of_row = static_cast<size_t>(n_kv_heads * attention.n_queries) *
                      static_cast<size_t>(attention.layer.value_dim + 2);
  const int64_t bytes = int64_t{rows} * n_pieces * static_cast<int64_t>(of_row * sizeof(float));
  if (n_pieces == 1 || rows * heads >= kEnoughBlocks || bytes > kMostSumBytes)
    return device_.launch(Whole{attention, chosen}, Grid{rows, heads, shared_bytes});
  auto* const sums = scratch_.take<float>(static_cast<size_t>(rows * n_pieces) * of_row);
  if (sums == nullptr) return;
  device_.launch(Pieces{attention, chosen, n_pieces, sums},
                 Grid{rows * n_pieces, heads, shared_bytes});
  device_.launch(JoinChosenPieces{attention, chosen, n_pieces, kPiece, sums},
                 Grid{rows, n_kv_heads * Attend{attention}.tiles()});
}

template <KvCode kCode, int kTiles>
bool SparseAttention::attend_by_products(const AttentionOnDevice& attention,
                                         const ChosenOnDevice& chosen) {
  using Pieces = FlashChosen<kCode, kTiles, false>;
  using Whole = FlashChosen<kCode, kTiles, true>;
  const Whole whole{attention, chosen};
  if (!flash_ || !Whole::suits(attention.layer) ||
      whole.shared_bytes() > device_.most_shared_bytes())
    return false;
  attend_by<Pieces, Whole>(attention, chosen, whole.tiles(), whole.shared_bytes());
  return true;
}

void SparseAttention::attend(const AttentionOnDevice& attention, const KvCache& cache,
                             const AttentionParams& params) {
  const ChosenOnDevice chosen = chosen_of(cache, params);
  const auto by_products = [&]<KvCode kCode>() {
    constexpr int kFewHeads = 16;
    return attention.n_queries <= kFewHeads ? attend_by_products<kCode, 1>(attention, chosen)
                                            : attend_by_products<kCode, 2>(attention, chosen);
  };
  const bool done = attention.layer.code == KvCode::kBF16 ? by_products.operator()<KvCode::kBF16>()
                                                          : by_products.operator()<KvCode::kF16>();
  if (done) return;
  const Attend like{attention};
  attend_by<AttendChosenPieces, AttendChosen>(attention, chosen, like.tiles(), like.shared_bytes());
}

}  // namespace penstock::cuda
