// What a device does at most, measured by kernels that do one thing (kernels/limits.h). The best of several rounds. On an emulated
// device rounds are so small that the numbers mean nothing, but all is done.
#pragma once
#include <cstdint>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/limits.h"
#include "ops/device_limits.h"

namespace penstock::cuda {

class DeviceRates {
 public:
  explicit DeviceRates(Device& device) : device_(device) {}

  // Bytes per second, of memory of so many bytes (fewer where it is emulated); a copy counts what it reads and what it writes.
  // 0: there is not so much memory.
  double read(int64_t bytes) { return move(bytes, false); }
  double copy(int64_t bytes) { return move(bytes, true); }
  // Operations per second by mma with operands in registers, two per product. 0: the device has no such instruction.
  template <Operand kOperand>
  double multiply();
  // Seconds from one launch to the next, asked for one by one and in a recording.
  double launch();
  double recorded_launch();
  // The same of kernels that are started while those before them run.
  double early_launch();

 private:
  double move(int64_t bytes, bool copies);
  template <class Fn>
  double seconds_of(Fn&& fn);

  Device& device_;
};

// What the backend says of itself: Ops::limits() and sample_device().
MachineLimits machine_limits(Device& device, int64_t read_bytes);
DeviceLimits device_limits(Device& device);

}  // namespace penstock::cuda
