// A vector that operations read, in a device's memory.
#pragma once
#include <utility>

#include "ops/cuda/device.h"
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

}  // namespace penstock::cuda
