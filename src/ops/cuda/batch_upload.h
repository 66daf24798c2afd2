// A step's batch, brought to the device in one transfer.
#pragma once
#include <cstddef>
#include <vector>

#include "ops/batch.h"
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/batch.h"

namespace penstock::cuda {

class BatchUpload {
 public:
  explicit BatchUpload(Device& device) : device_(device) {}
  // Error: kResourceExhausted. `moved`: on_device() is another pointer than before.
  Status set(const Batch& batch, bool& moved);
  const BatchOnDevice* on_device() const { return memory_.as<const BatchOnDevice>(); }

 private:
  template <class T>
  const T* put(std::span<const T> values, size_t n, T missing);

  Device& device_;
  Memory memory_;
  std::vector<std::byte> staged_;
  std::vector<int32_t> sequences_;  // of the tokens
  bool measuring_ = false;
  size_t used_ = 0;
};

}  // namespace penstock::cuda
