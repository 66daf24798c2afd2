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

// The order of a weight's columns: column j multiplies input order[j]. Weights with equal orders share one,
// so that their inputs are put into it once.
using InputOrder = std::vector<int32_t>;

class CpuWeight final : public Weight {
 public:
  int rows() const override { return panels_.rows; }
  int cols() const override { return panels_.cols; }
  int64_t packed_bytes() const override { return static_cast<int64_t>(bytes().size()); }

  const PanelMatrix& panels() const { return panels_; }  // what they hold: see late()
  // Null unless the panels are still to be packed.
  LatePanels* late() const { return late_ == nullptr || late_->done() ? nullptr : late_.get(); }
  const InputOrder* input_order() const { return order_.get(); }  // null: as they are
  const ActivationRounding& rounding() const { return rounding_; }
  // The panels, then the row scales if any. REQUIRES: late() is null.
  std::span<const std::byte> bytes() const;
  std::string description() const;  // see Ops::describe
  // Row `row` as cols() floats.
  void decode_row(int row, float* out) const;

 private:
  friend class WeightPacker;
  PanelMatrix panels_;
  WeightMemory memory_;                // the weight's bytes, or
  std::shared_ptr<const void> owner_;  // who keeps them
  std::shared_ptr<const InputOrder> order_;
  ActivationRounding rounding_;
  std::unique_ptr<LatePanels> late_;  // null: packed when it was loaded
};

// Packs matrices into panels, in parallel; the matrix is not needed afterwards, unless it may lie in a file.
class WeightPacker {
 public:
  explicit WeightPacker(ThreadPool& pool) : pool_(pool) {}

  // Errors: kInvalidArgument (no such shape), kResourceExhausted.
  // may_wait: a large matrix in a mapped file is not packed yet (LatePanels), and keeps the file mapped.
  Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& matrix, bool may_wait = false);
  int64_t late_bytes() const { return late_bytes_; }  // of all that waited
  // What of the weight is not packed yet.
  void pack_rest(const CpuWeight& weight) const;
  // Rows [first_row, first_row + n_rows) of a checked matrix. Error: kResourceExhausted.
  Result<std::unique_ptr<Weight>> pack(const GroupedMatrix& matrix, int first_row, int n_rows);
  // See Ops::restore.
  Result<std::unique_ptr<Weight>> restore(const StoredWeight& stored, std::shared_ptr<const void> owner);

 private:
  // Weights with equal orders share one.
  std::shared_ptr<const InputOrder> shared_order(InputOrder order);
  Result<std::unique_ptr<CpuWeight>> allocate(const PanelShape& shape, int rows, int cols);
  static float* row_scales(CpuWeight& weight);

  ThreadPool& pool_;
  WeightPages pages_;
  int64_t late_bytes_ = 0;
  std::shared_ptr<const InputOrder> last_order_;
};

}  // namespace penstock
