// What a step asks of several ranks. Whoever runs the steps asks the communicator whether they went well.
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/host_tensor.h"
#include "parallel/communicator.h"

namespace penstock {
Shard CpuOps::shard() const { return config_.ranks != nullptr ? config_.ranks->shard() : Shard{}; }

void CpuOps::all_reduce(Tensor x) {
  if (config_.ranks == nullptr) return;
  const auto cols = static_cast<size_t>(x.cols);
  if (x.row_stride == x.cols) {
    (void)config_.ranks->all_reduce({f32(x, 0), cols * static_cast<size_t>(x.rows)}, config_.rank_wire);
    return;
  }
  for (int row = 0; row < x.rows; ++row)
    (void)config_.ranks->all_reduce({f32(x, row), cols}, config_.rank_wire);
}

void CpuOps::gather_row(float* row, int cols) {
  Shard shard = config_.ranks->shard();
  std::vector<std::span<float>> parts;
  for (shard.rank = 0; shard.rank < shard.n_ranks; ++shard.rank) {
    const Shard::Range columns = shard.range(cols);
    parts.emplace_back(row + columns.first, static_cast<size_t>(columns.count));
  }
  (void)config_.ranks->all_gather(parts);
}

void CpuOps::all_gather(Tensor x) {
  if (config_.ranks == nullptr) return;
  for (int row = 0; row < x.rows; ++row) gather_row(f32(x, row), x.cols);
}

}  // namespace penstock
