// LoRA terms of the CPU's products, as grouped products: one group has the rows of one adapter.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/gemm_kernels.h"
#include "ops/batch.h"
#include "ops/cpu/linear.h"

namespace penstock {

// Rows of a step whose sequences have an adapter, grouped by adapter.
class AdapterRows {
 public:
  struct Group {
    int slot = 0;
    std::span<const int32_t> rows;  // ascending
    bool adjacent() const {
      return rows.back() - rows.front() + 1 == static_cast<int>(rows.size());
    }
  };
  void set(const Batch& batch);
  bool empty() const { return groups_.empty(); }
  std::span<const Group> groups() const { return groups_; }

 private:
  std::vector<int32_t> rows_;
  std::vector<Group> groups_;
};

// The terms that the step's adapters add to a few products with the same input, in F32. The result
// of a row does not depend on the other rows of the batch.
class AdapterProducts {
  static constexpr int kBlockRows = 32, kBlockPanels = 8;

 public:
  // Describes the terms of these rows of x. Memory comes from the context's scratch, after what is
  // allocated there. REQUIRES: x is computed.
  AdapterProducts(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets,
                  std::span<const AdapterRows::Group> groups);

  bool empty() const { return n_terms_ == 0; }
  // Computes x a^T in n_blocks() blocks. Any thread; all blocks before add().
  int n_blocks() const { return n_blocks_; }
  void reduce(int begin, int end) const;

  // out += (x a^T) b^T for panels [begin, end) of target i. sums: kSums values of the worker's
  // scratch.
  static constexpr size_t kSums = size_t{kBlockRows} * kBlockPanels * kPanelRows;
  void add(size_t i, int begin, int end, float* sums) const;

 private:
  // The term of one group for one target.
  struct Term {
    size_t target = 0;
    const AdapterRows::Group* group = nullptr;
    const PanelMatrix *a = nullptr, *b = nullptr;
    const float* x = nullptr;  // rows of the group
    ptrdiff_t x_stride = 0;
    float* thin = nullptr;  // [rows, rank]
    // thin belongs to another term with the same a
    bool computed_before = false;
    int n_blocks() const {
      return (static_cast<int>(group->rows.size()) + kBlockRows - 1) / kBlockRows;
    }
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
