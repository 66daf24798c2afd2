// Collective operations on the devices of several ranks: exchange of numbers in device memory, in
// the order of each device's work. The processes of the ranks exchange batches, signs of life and
// errors by the Communicator.
//
// Sums are not computed by NCCL, whose order depends on how GPUs are connected, but from all shares
// in the order of the ranks, which gives the same bits as ranks on CPUs.
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
  // All-gather: all [n_ranks][n] = own [n] of every rank.
  virtual void gather(const float* own, float* all, size_t n) = 0;
  // All-to-all: got[r] = the part for this rank of rank r's parts [n_ranks][n].
  virtual void exchange(const float* parts, float* got, size_t n) = 0;
};

// Selects the rank-th of the devices that the process may use (CUDA_VISIBLE_DEVICES). REQUIRES:
// called once, before any call of CUDA. Error: kInvalidArgument if there are fewer.
Status choose_device(int rank);

// Makes ranks that exchange through host memory, for devices that NCCL does not support: the
// emulated one.
std::unique_ptr<DeviceRanks> make_host_ranks(Device& device, Communicator& ranks);
// Makes ranks that exchange by NCCL on the device's stream. If the run fails, waiting work on the
// device is aborted. Errors, on all ranks: kUnsupported (NCCL is missing), kInternal (an error of
// NCCL).
Result<std::unique_ptr<DeviceRanks>> make_nccl_ranks(Device& device, Communicator& ranks,
                                                     const std::string& library = kNcclName);

}  // namespace penstock::cuda
