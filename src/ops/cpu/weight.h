// A weight matrix of the CPU backend: panels of 16 rows, one after the other.
#pragma once
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/pack/panel_pack.h"
#include "ops/cpu/late_panels.h"
#include "ops/cpu/weight_memory.h"
#include "ops/ops.h"

namespace penstock {

// Permutation of a weight's columns: column j multiplies input order[j]. Weights with equal orders
// share one object, so that inputs are permuted once.
using InputOrder = std::vector<int32_t>;

class CpuWeight final : public Weight {
 public:
  int rows() const override { return panels_.rows; }
  int cols() const override { return panels_.cols; }
  int64_t packed_bytes() const override { return static_cast<int64_t>(bytes().size()); }

  const PanelMatrix& panels() const { return panels_; }  // not packed yet if late() is not null
  // Returns the panels that are packed lazily; null if all are packed.
  LatePanels* late() const { return late_ == nullptr || late_->done() ? nullptr : late_.get(); }
  const InputOrder* input_order() const { return order_.get(); }  // null: columns are not permuted
  const ActivationRounding& rounding() const { return rounding_; }
  // Returns the panels, then the row scales if any. REQUIRES: late() is null.
  std::span<const std::byte> bytes() const;
  std::string description() const;  // see Ops::describe
  // out = row `row`, cols() floats.
  void decode_row(int row, float* out) const;

 private:
  friend class WeightPacker;
  PanelMatrix panels_;
  WeightMemory memory_;                // memory of the weight, or
  std::shared_ptr<const void> owner_;  // the owner of its bytes
  std::shared_ptr<const InputOrder> order_;
  ActivationRounding rounding_;
  std::unique_ptr<LatePanels> late_;  // null: packed at load
};

// Packs matrices into panels, in parallel. The matrix may be freed afterwards, unless it is packed
// lazily from a file.
class WeightPacker {
 public:
  explicit WeightPacker(ThreadPool& pool) : pool_(pool) {}

  // may_wait: a large matrix in a mapped file is packed lazily (LatePanels), and its file stays
  // mapped. Errors: kInvalidArgument (no such shape), kResourceExhausted.
  Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& matrix, bool may_wait = false);
  int64_t late_bytes() const { return late_bytes_; }  // bytes of all lazily packed weights
  // Packs the part of the weight that is not packed yet.
  void pack_rest(const CpuWeight& weight) const;
  // Packs rows [first_row, first_row + n_rows) of a checked matrix. Error: kResourceExhausted.
  Result<std::unique_ptr<Weight>> pack(const GroupedMatrix& matrix, int first_row, int n_rows);
  // See Ops::restore.
  Result<std::unique_ptr<Weight>> restore(const StoredWeight& stored,
                                          std::shared_ptr<const void> owner);

 private:
  // Returns one object for equal orders.
  std::shared_ptr<const InputOrder> shared_order(InputOrder order);
  Result<std::unique_ptr<CpuWeight>> allocate(const PanelShape& shape, int rows, int cols);
  static float* row_scales(CpuWeight& weight);

  ThreadPool& pool_;
  WeightPages pages_;
  int64_t late_bytes_ = 0;
  std::shared_ptr<const InputOrder> last_order_;
};

}  // namespace penstock
