#include "ops/cpu/cpu_ranks.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "ops/cpu/host_tensor.h"

namespace penstock {
namespace {

constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

// A token and its logit, as ranks exchange them.
struct Likely {
  float logit;
  int32_t token;
};
static_assert(sizeof(Likely) == 2 * sizeof(float));

struct LikelierFirst {
  bool operator()(const Likely& a, const Likely& b) const {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
};

// The k most likely of n tokens, in any order; what is not possible has token -1. As the sampler
// orders them: of equals the lowest number.
void find_likeliest(const ScanKernels& scans, const float* logits, int first_token, int n,
                    std::span<Likely> out) {
  const size_t k = out.size();
  std::vector<float> block_max(static_cast<size_t>((n + kScanBlock - 1) / kScanBlock));
  if (n > 0) scans.block_max(logits, n, block_max.data());
  float threshold = kNoLogit;  // the k-th largest block maximum is at most the k-th largest value
  if (k < block_max.size()) {
    std::vector<float> largest = block_max;
    std::nth_element(largest.begin(), largest.begin() + static_cast<ptrdiff_t>(k) - 1,
                     largest.end(), std::greater<>());
    threshold = largest[k - 1];
  }
  std::vector<Likely> found;
  for (size_t block = 0; block < block_max.size(); ++block) {
    if (!(block_max[block] >= threshold) || block_max[block] == kNoLogit) continue;
    const int begin = static_cast<int>(block) * kScanBlock, end = std::min(begin + kScanBlock, n);
    for (int i = begin; i < end; ++i)
      if (logits[i] >= threshold && logits[i] > kNoLogit)
        found.push_back({logits[i], first_token + i});
  }
  const size_t n_kept = std::min(k, found.size());
  std::nth_element(found.begin(), found.begin() + static_cast<ptrdiff_t>(n_kept), found.end(),
                   LikelierFirst{});
  std::copy_n(found.begin(), n_kept, out.begin());
  std::fill(out.begin() + static_cast<ptrdiff_t>(n_kept), out.end(), Likely{kNoLogit, -1});
}

// How many of a part of the columns go to the others; as many as there are where that is no less.
int n_likely(int top, int cols) { return top > 0 && 2 * top < cols ? top : 0; }

// `n` rows, from the `first`-th on.
void gather_rows(Communicator& ranks, Tensor x, int first, int n) {
  if (n == 0) return;
  Shard shard = ranks.shard();
  std::vector<PartRows> parts;
  for (shard.rank = 0; shard.rank < shard.n_ranks; ++shard.rank) {
    const Shard::Range columns = shard.range(x.cols);
    parts.emplace_back(f32(x, first) + columns.first, static_cast<size_t>(columns.count),
                       static_cast<size_t>(n), static_cast<size_t>(x.row_stride));
  }
  (void)ranks.all_gather(parts);
}

}  // namespace

void cpu_all_reduce(Communicator& ranks, WireType wire, Tensor x) {
  const auto cols = static_cast<size_t>(x.cols);
  if (x.row_stride == x.cols) {
    (void)ranks.all_reduce({f32(x, 0), cols * static_cast<size_t>(x.rows)}, wire);
    return;
  }
  for (int row = 0; row < x.rows; ++row) (void)ranks.all_reduce({f32(x, row), cols}, wire);
}

void cpu_all_gather(Communicator& ranks, Tensor x) { gather_rows(ranks, x, 0, x.rows); }

// All rows' most likely tokens in one operation, and in one each the rows between those.
void cpu_gather_logits(Communicator& ranks, ThreadPool& pool, const ScanKernels& scans,
                       std::span<const int32_t> row_tops, Tensor x) {
  const Shard own = ranks.shard();
  struct Few {
    int row, n;
    size_t first;  // of a rank's, before this row's
  };
  std::vector<Few> few;
  size_t n_each = 0;
  int n_before = 0;  // rows that are done or few
  for (int row = 0; row < x.rows; ++row) {
    const int top =
        static_cast<size_t>(row) < row_tops.size() ? row_tops[static_cast<size_t>(row)] : 0;
    if (const int n = n_likely(top, x.cols / own.n_ranks); n > 0) {
      few.push_back({row, n, n_each});
      n_each += static_cast<size_t>(n);
      gather_rows(ranks, x, n_before, row - n_before);
      n_before = row + 1;
    }
  }
  gather_rows(ranks, x, n_before, x.rows - n_before);
  if (few.empty()) return;
  std::vector<Likely> found(n_each * static_cast<size_t>(own.n_ranks));
  const auto of_rank = [&](int rank) {
    return std::span(found).subspan(n_each * static_cast<size_t>(rank), n_each);
  };
  const Shard::Range columns = own.range(x.cols);
  const auto n_few = static_cast<int64_t>(few.size());
  pool.for_ranges(n_few, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Few& row = few[static_cast<size_t>(i)];
      find_likeliest(scans, f32(x, row.row) + columns.first, columns.first, columns.count,
                     of_rank(own.rank).subspan(row.first, static_cast<size_t>(row.n)));
    }
  });
  std::vector<PartRows> parts;
  for (int rank = 0; rank < own.n_ranks; ++rank)
    parts.emplace_back(std::span(reinterpret_cast<float*>(of_rank(rank).data()), 2 * n_each));
  (void)ranks.all_gather(parts);
  pool.for_ranges(n_few, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Few& row = few[static_cast<size_t>(i)];
      float* const logits = f32(x, row.row);
      std::fill_n(logits, x.cols, kNoLogit);
      for (int rank = 0; rank < own.n_ranks; ++rank) {
        for (const Likely& one : of_rank(rank).subspan(row.first, static_cast<size_t>(row.n)))
          if (one.token >= 0 && one.token < x.cols) logits[one.token] = one.logit;
      }
    }
  });
}

}  // namespace penstock
