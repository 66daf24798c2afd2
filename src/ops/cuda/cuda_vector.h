// A Vector in a device's memory.
#pragma once
#include <algorithm>
#include <utility>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/rows.h"
#include "ops/ops.h"

namespace penstock::cuda {

class CudaVector final : public Vector {
 public:
  CudaVector(Memory memory, int size) : memory_(std::move(memory)), size_(size) {}
  int size() const override { return size_; }
  const float* data() const { return memory_.as<const float>(); }

 private:
  Memory memory_;
  int size_;
};
// REQUIRES: a vector of this backend, or null.
inline const float* device_data(const Vector* vector) {
  return vector == nullptr ? nullptr : static_cast<const CudaVector*>(vector)->data();
}
// Returns the parameters of a norm of rows with `cols` columns.
inline RowNorm row_norm_of(const NormParams& params, int cols) {
  const int weight_rows = params.weight != nullptr ? std::max(params.weight->size() / cols, 1) : 1;
  return {device_data(params.weight), device_data(params.bias), weight_rows, params.eps,
          params.layer_norm};
}

}  // namespace penstock::cuda
