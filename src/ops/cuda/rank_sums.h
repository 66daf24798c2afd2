// What a step asks of several ranks: sums in their order, and parts side by side.
#pragma once
#include "ops/cuda/device_ranks.h"
#include "ops/cuda/step_memory.h"
#include "ops/ops.h"

namespace penstock::cuda {

class RankSums {
 public:
  // All but devices outlive this. ops: what copies and adds on the device.
  RankSums(Ops& ops, Device& device, StepMemory& memory, Communicator& ranks,
           std::unique_ptr<DeviceRanks> devices)
      : ops_(ops), device_(device), memory_(memory), ranks_(ranks), devices_(std::move(devices)) {}

  // As those of Ops.
  void all_reduce(Tensor x);
  void all_gather(Tensor x);

 private:
  // Memory for n numbers; null after the device's failure, which the other ranks hear of.
  float* take(size_t n);
  void add_up(float* shares, Tensor to);
  void all_reduce_by_parts(Tensor x);

  Ops& ops_;
  Device& device_;
  StepMemory& memory_;
  Communicator& ranks_;
  std::unique_ptr<DeviceRanks> devices_;
};

}  // namespace penstock::cuda
