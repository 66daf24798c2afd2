// A weight matrix of the CPU backend: panels of 16 rows in one allocation.
#pragma once
#include <memory>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/gemm_kernels.h"
#include "ops/ops.h"

namespace penstock {

// Zeroed, 64-byte aligned memory for weights, in huge pages where it is large. Empty if the system refuses.
class WeightMemory {
 public:
  WeightMemory() = default;
  explicit WeightMemory(size_t bytes);
  ~WeightMemory();
  WeightMemory(WeightMemory&& other) noexcept;
  WeightMemory& operator=(WeightMemory&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

class CpuWeight final : public Weight {
 public:
  int rows() const override { return panels_.rows; }
  int cols() const override { return panels_.cols; }
  int64_t packed_bytes() const override { return static_cast<int64_t>(memory_.size()); }

  const PanelMatrix& panels() const { return panels_; }
  // Row `row` as cols() floats.
  void decode_row(int row, float* out) const;

 private:
  friend Result<std::unique_ptr<Weight>> pack_cpu_weight(ThreadPool& pool, const QuantizedMatrix& matrix);
  PanelMatrix panels_;
  WeightMemory memory_;  // the panels, then the row scales if any
};

// Packs the matrix into panels, in parallel; `matrix` is not needed afterwards.
// Errors: kInvalidArgument (no such shape), kResourceExhausted.
Result<std::unique_ptr<Weight>> pack_cpu_weight(ThreadPool& pool, const QuantizedMatrix& matrix);

}  // namespace penstock
