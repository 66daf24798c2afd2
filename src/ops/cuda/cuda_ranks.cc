// What a step asks of several ranks.
#include <algorithm>

#include "ops/cuda/cuda_ops.h"

namespace penstock::cuda {
namespace {

// Sums of up to so many bytes of all ranks are taken by every rank of everything: one turn. Longer ones by parts.
constexpr size_t kSmallSum = size_t{1} << 20;
constexpr size_t kPartCols = 256;  // a part is rows of so many

Tensor contiguous(float* data, size_t rows, size_t cols) {
  return {data, DType::kF32, static_cast<int>(rows), static_cast<int>(cols), static_cast<ptrdiff_t>(cols)};
}

}  // namespace

Shard CudaOps::shard() const { return config_.ranks != nullptr ? config_.ranks->shard() : Shard{}; }

// Memory for n numbers; null after the device's failure, which the other ranks hear of.
float* CudaOps::take_for_ranks(size_t n) {
  float* const taken = scratch<float>(n);
  if (taken == nullptr && n > 0) {
    const Status status = device_->status();
    config_.ranks->fail(fmt::format("rank {} of {}: {}", config_.ranks->rank(), config_.ranks->size(),
                                    status ? "no memory for a sum" : status.error().message));
  }
  return taken;
}

// to = the sum of shares, all ranks' of its size side by side, in the order of the ranks.
void CudaOps::add_up(float* shares, Tensor to) {
  const auto rows = static_cast<size_t>(to.rows), cols = static_cast<size_t>(to.cols);
  for (int r = 0; r < shard().n_ranks; ++r) {
    const Tensor share = contiguous(shares + rows * cols * static_cast<size_t>(r), rows, cols);
    r == 0 ? copy(share, to) : add(to, share, 1.0f);
  }
}

void CudaOps::all_reduce(Tensor x) {
  if (ranks_ == nullptr || x.rows == 0) return;
  if (x.row_stride != x.cols) {
    float* const packed = take_for_ranks(static_cast<size_t>(x.rows) * static_cast<size_t>(x.cols));
    if (packed == nullptr) return;
    const Tensor whole = contiguous(packed, static_cast<size_t>(x.rows), static_cast<size_t>(x.cols));
    copy(x, whole);
    all_reduce(whole);
    return copy(whole, x);
  }
  const auto n_ranks = static_cast<size_t>(shard().n_ranks);
  const size_t n = static_cast<size_t>(x.rows) * static_cast<size_t>(x.cols);
  if (n * n_ranks * sizeof(float) > kSmallSum) return all_reduce_by_parts(x);
  float* const shares = take_for_ranks(n * n_ranks);
  if (shares == nullptr) return;
  ranks_->gather(static_cast<const float*>(x.data), shares, n);
  add_up(shares, x);
}

// Each rank sums one part and gives it to all.
void CudaOps::all_reduce_by_parts(Tensor x) {
  const auto n_ranks = static_cast<size_t>(shard().n_ranks);
  const auto rows = static_cast<size_t>(x.rows), cols = static_cast<size_t>(x.cols), n = rows * cols;
  const size_t part_rows = (n + n_ranks * kPartCols - 1) / (n_ranks * kPartCols),
               n_each = part_rows * kPartCols;
  float* const parts = take_for_ranks(n_each * n_ranks);
  float* const shares = take_for_ranks(n_each * n_ranks);
  float* const own = take_for_ranks(n_each);
  if (parts == nullptr || shares == nullptr || own == nullptr) return;
  copy(x, contiguous(parts, rows, cols));
  if (n < n_each * n_ranks) clear(contiguous(parts + n, 1, n_each * n_ranks - n));
  ranks_->exchange(parts, shares, n_each);
  add_up(shares, contiguous(own, part_rows, kPartCols));
  ranks_->gather(own, parts, n_each);
  copy(contiguous(parts, rows, cols), x);
}

// Parts of a row are as wide as the widest while they are side by side.
void CudaOps::all_gather(Tensor x) {
  if (ranks_ == nullptr || x.rows == 0) return;
  const Shard own = shard();
  const auto columns_of = [&](int rank) { return Shard{rank, own.n_ranks}.range(x.cols); };
  const int widest = columns_of(0).count;
  const auto n = static_cast<size_t>(x.rows) * static_cast<size_t>(widest);
  float* const mine = take_for_ranks(n);
  float* const all = take_for_ranks(n * static_cast<size_t>(own.n_ranks));
  if (mine == nullptr || all == nullptr) return;
  const auto part = [&](float* data, int rank) {
    return Tensor{data, DType::kF32, x.rows, columns_of(rank).count, widest};
  };
  const auto in_x = [&](int rank) { return x.columns(columns_of(rank).first, columns_of(rank).count); };
  if (columns_of(own.rank).count > 0) copy(in_x(own.rank), part(mine, own.rank));
  ranks_->gather(mine, all, n);
  for (int rank = 0; rank < own.n_ranks; ++rank) {
    if (rank == own.rank || columns_of(rank).count == 0) continue;
    copy(part(all + n * static_cast<size_t>(rank), rank), in_x(rank));
  }
}

}  // namespace penstock::cuda
