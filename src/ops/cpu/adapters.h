// What LoRA adapters add to the CPU's products: grouped products, a group being the rows of one adapter.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/gemm_kernels.h"
#include "ops/batch.h"
#include "ops/cpu/linear.h"

namespace penstock {

// The rows of a step whose sequences have an adapter, by adapter.
class AdapterRows {
 public:
  struct Group {
    int slot = 0;
    std::span<const int32_t> rows;  // ascending
    bool adjacent() const { return rows.back() - rows.front() + 1 == static_cast<int>(rows.size()); }
  };
  void set(const Batch& batch);
  bool empty() const { return groups_.empty(); }
  std::span<const Group> groups() const { return groups_; }

 private:
  std::vector<int32_t> rows_;
  std::vector<Group> groups_;
};

// The part of a few products that the adapters of the step add, in F32. A result does not depend on which other rows are in the
// batch.
class AdapterProducts {
  static constexpr int kBlockRows = 32, kBlockPanels = 8;

 public:
  // Of these rows of x, which are there. Its memory is the context's scratch, after what is there.
  AdapterProducts(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets,
                  std::span<const AdapterRows::Group> groups);

  bool empty() const { return n_terms_ == 0; }
  // x a^T, in so many blocks; before add(), by any thread.
  int n_blocks() const { return n_blocks_; }
  void reduce(int begin, int end) const;

  // out += (x a^T) b^T for panels [begin, end) of target i. sums: the worker's, of kSums values.
  static constexpr size_t kSums = size_t{kBlockRows} * kBlockPanels * kPanelRows;
  void add(size_t i, int begin, int end, float* sums) const;

 private:
  // One group and one target.
  struct Term {
    size_t target = 0;
    const AdapterRows::Group* group = nullptr;
    const PanelMatrix *a = nullptr, *b = nullptr;
    const float* x = nullptr;  // the group's rows
    ptrdiff_t x_stride = 0;
    float* thin = nullptr;         // [rows, rank]
    bool computed_before = false;  // thin is that of another term, with the same a
    int n_blocks() const { return (static_cast<int>(group->rows.size()) + kBlockRows - 1) / kBlockRows; }
  };
  void find_terms(Tensor x, std::span<const AdapterRows::Group> groups);
  void share(Term& term) const;
  void gather(Tensor x);
  void reduce_block(const Term& term, int block) const;

  const LinearContext& context_;
  const std::span<const LinearTarget> targets_;
  Term* terms_ = nullptr;
  int n_terms_ = 0, n_blocks_ = 0;
};

}  // namespace penstock
