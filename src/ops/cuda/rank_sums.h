// Collective operations of a step over several ranks: sums in the order of the ranks, and gathered
// columns.
#pragma once
#include "ops/cuda/device_ranks.h"
#include "ops/cuda/step_memory.h"
#include "ops/ops.h"

namespace penstock::cuda {

class RankSums {
 public:
  // REQUIRES: all arguments but the DeviceRanks outlive this object. ops: copies and adds on the
  // device.
  RankSums(Ops& ops, Device& device, StepMemory& memory, Communicator& ranks,
           std::unique_ptr<DeviceRanks> devices)
      : ops_(ops), device_(device), memory_(memory), ranks_(ranks), devices_(std::move(devices)) {}

  // See Ops.
  void all_reduce(Tensor x);
  void all_gather(Tensor x);

 private:
  // Returns memory for n numbers; null after a failure of the device, which the other ranks are
  // told.
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
