// What the devices of several ranks give each other: numbers in the devices' memory, in the order of each device's work. What the ranks' processes
// say to each other (batches, signs of life, why the run has ended) is the Communicator's.
//
// Sums are not taken by NCCL, whose order depends on how GPUs are connected, but from everybody's shares in the order of the ranks: the bits are those of
// ranks on processors.
#pragma once
#include <memory>
#include <string>

#include "ops/cuda/device.h"
#include "ops/cuda/nccl_library.h"
#include "parallel/communicator.h"

namespace penstock::cuda {

class DeviceRanks {
 public:
  virtual ~DeviceRanks() = default;
  // all [n_ranks][n]: every rank's own [n], side by side.
  virtual void gather(const float* own, float* all, size_t n) = 0;
  // got [n_ranks][n]: of rank r's parts [n_ranks][n] the one that is for this rank.
  virtual void exchange(const float* parts, float* got, size_t n) = 0;
};

// Of this process, once, before it calls anything of CUDA: the rank-th of those it may use (CUDA_VISIBLE_DEVICES). Error:
// kInvalidArgument, that names fewer.
Status choose_device(int rank);

// Through the hosts' memory, for devices that NCCL does not know: the emulated one.
std::unique_ptr<DeviceRanks> make_host_ranks(Device& device, Communicator& ranks);
// By NCCL, on the device's stream. When the run fails what waits on the device is aborted. Errors, on all ranks: kUnsupported (there is no NCCL),
// kInternal (what NCCL says).
Result<std::unique_ptr<DeviceRanks>> make_nccl_ranks(Device& device, Communicator& ranks,
                                                     const std::string& library = kNcclName);

}  // namespace penstock::cuda
