// A weight matrix of the CPU backend.
#pragma once
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "ops/ops.h"

namespace penstock {

class CpuWeight final : public Weight {
 public:
  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  int64_t packed_bytes() const override { return static_cast<int64_t>(bytes_.size()); }

  // Row `row` as cols() floats.
  void decode_row(int row, float* out) const;

 private:
  friend Result<std::unique_ptr<Weight>> pack_cpu_weight(ThreadPool& pool, const QuantizedMatrix& matrix);
  QuantType type_ = QuantType::kF32;
  int rows_ = 0, cols_ = 0;
  std::vector<std::byte> bytes_;
};

// Copies the matrix into panels, in parallel; `matrix` is not needed afterwards.
// Errors: kUnsupported (a type that is no weight encoding), kResourceExhausted.
Result<std::unique_ptr<Weight>> pack_cpu_weight(ThreadPool& pool, const QuantizedMatrix& matrix);

}  // namespace penstock
