// The elements of the CPU backend's tensors and vectors, whose memory is the host's.
#pragma once
#include <span>
#include <vector>

#include "ops/ops.h"

namespace penstock {

// REQUIRES: an F32 tensor of the CPU backend.
inline float* f32(const Tensor& tensor, int row = 0) {
  return static_cast<float*>(tensor.data) + row * tensor.row_stride;
}

class CpuVector final : public Vector {
 public:
  explicit CpuVector(std::span<const float> values) : values_(values.begin(), values.end()) {}
  int size() const override { return static_cast<int>(values_.size()); }
  std::span<const float> values() const { return values_; }

 private:
  std::vector<float> values_;
};

// REQUIRES: a vector of the CPU backend.
inline std::span<const float> values_of(const Vector& vector) {
  return static_cast<const CpuVector&>(vector).values();
}
// The same as kernels take it; null for none.
inline const float* data_of(const Vector* vector) {
  return vector == nullptr ? nullptr : values_of(*vector).data();
}

}  // namespace penstock
