// Measured limits of a device, by kernels that do one thing (kernels/limits.h): the best of several
// rounds. On an emulated device rounds are tiny and the numbers mean nothing, but every kernel
// runs.
#pragma once
#include <cstdint>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/limits.h"
#include "ops/device_limits.h"

namespace penstock::cuda {

class DeviceRates {
 public:
  explicit DeviceRates(Device& device) : device_(device) {}

  // Bytes per second, for memory of this size (less on an emulated device); a copy counts bytes
  // read and written. 0: there is not enough memory.
  double read(int64_t bytes) { return move(bytes, false); }
  double copy(int64_t bytes) { return move(bytes, true); }
  // Operations per second by mma with operands in registers, two per product. 0: the device lacks
  // the instruction.
  template <Operand kOperand>
  double multiply();
  // Seconds from one launch to the next, launched one by one and in a recording.
  double launch();
  double recorded_launch();
  // As launch(), for kernels that start while earlier ones run.
  double early_launch();

 private:
  double move(int64_t bytes, bool copies);
  template <class Fn>
  double seconds_of(Fn&& fn);

  Device& device_;
};

// Results of Ops::limits() and sample_device().
MachineLimits machine_limits(Device& device, int64_t read_bytes);
DeviceLimits device_limits(Device& device);

}  // namespace penstock::cuda
