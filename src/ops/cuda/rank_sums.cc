#include "ops/cuda/rank_sums.h"

namespace penstock::cuda {
namespace {

// Up to this many bytes per rank, every rank gathers all shares and sums them (one exchange).
// Longer tensors are reduced by parts.
constexpr size_t kSmallSum = size_t{1} << 20;
constexpr size_t kPartCols = 256;  // columns of the matrix as which parts are summed

Tensor contiguous(float* data, size_t rows, size_t cols) {
  return {data, DType::kF32, static_cast<int>(rows), static_cast<int>(cols),
          static_cast<ptrdiff_t>(cols)};
}

}  // namespace

float* RankSums::take(size_t n) {
  const Result<void*> taken = memory_.take(n * sizeof(float));
  if (!taken) device_.give_up(taken.error());
  const Status status = device_.status();
  if (status) return static_cast<float*>(*taken);
  ranks_.fail(
      fmt::format("rank {} of {}: {}", ranks_.rank(), ranks_.size(), status.error().message));
  return nullptr;
}

// to = the sum of shares [n_ranks][to.rows][to.cols], added in the order of the ranks.
void RankSums::add_up(float* shares, Tensor to) {
  const auto rows = static_cast<size_t>(to.rows), cols = static_cast<size_t>(to.cols);
  for (int r = 0; r < ranks_.size(); ++r) {
    const Tensor share = contiguous(shares + rows * cols * static_cast<size_t>(r), rows, cols);
    r == 0 ? ops_.copy(share, to) : ops_.add(to, share, 1.0f);
  }
}

void RankSums::all_reduce(Tensor x) {
  if (x.rows == 0) return;
  if (x.row_stride != x.cols) {
    float* const packed = take(static_cast<size_t>(x.rows) * static_cast<size_t>(x.cols));
    if (packed == nullptr) return;
    const Tensor whole =
        contiguous(packed, static_cast<size_t>(x.rows), static_cast<size_t>(x.cols));
    ops_.copy(x, whole);
    all_reduce(whole);
    return ops_.copy(whole, x);
  }
  const auto n_ranks = static_cast<size_t>(ranks_.size());
  const size_t n = static_cast<size_t>(x.rows) * static_cast<size_t>(x.cols);
  if (n * n_ranks * sizeof(float) > kSmallSum) return all_reduce_by_parts(x);
  float* const shares = take(n * n_ranks);
  if (shares == nullptr) return;
  devices_->gather(static_cast<const float*>(x.data), shares, n);
  add_up(shares, x);
}

// Reduce-scatter and all-gather: each rank sums one part and sends the sum to all ranks.
void RankSums::all_reduce_by_parts(Tensor x) {
  const auto n_ranks = static_cast<size_t>(ranks_.size());
  const auto rows = static_cast<size_t>(x.rows), cols = static_cast<size_t>(x.cols),
             n = rows * cols;
  const size_t part_rows = (n + n_ranks * kPartCols - 1) / (n_ranks * kPartCols),
               n_each = part_rows * kPartCols;
  float* const parts = take(n_each * n_ranks);
  float* const shares = take(n_each * n_ranks);
  float* const own = take(n_each);
  if (parts == nullptr || shares == nullptr || own == nullptr) return;
  ops_.copy(x, contiguous(parts, rows, cols));
  if (n < n_each * n_ranks) ops_.clear(contiguous(parts + n, 1, n_each * n_ranks - n));
  devices_->exchange(parts, shares, n_each);
  add_up(shares, contiguous(own, part_rows, kPartCols));
  devices_->gather(own, parts, n_each);
  ops_.copy(contiguous(parts, rows, cols), x);
}

// All ranks exchange parts of equal size, those of the widest: rank 0's.
void RankSums::all_gather(Tensor x) {
  if (x.rows == 0) return;
  const Shard own = ranks_.shard();
  const auto columns_of = [&](int rank) { return Shard{rank, own.n_ranks}.range(x.cols); };
  const int widest = columns_of(0).count;
  const auto n = static_cast<size_t>(x.rows) * static_cast<size_t>(widest);
  float* const mine = take(n);
  float* const all = take(n * static_cast<size_t>(own.n_ranks));
  if (mine == nullptr || all == nullptr) return;
  const auto part = [&](float* data, int rank) {
    return Tensor{data, DType::kF32, x.rows, columns_of(rank).count, widest};
  };
  const auto in_x = [&](int rank) {
    return x.columns(columns_of(rank).first, columns_of(rank).count);
  };
  if (columns_of(own.rank).count > 0) ops_.copy(in_x(own.rank), part(mine, own.rank));
  devices_->gather(mine, all, n);
  for (int rank = 0; rank < own.n_ranks; ++rank) {
    if (rank == own.rank || columns_of(rank).count == 0) continue;
    ops_.copy(part(all + n * static_cast<size_t>(rank), rank), in_x(rank));
  }
}

}  // namespace penstock::cuda
