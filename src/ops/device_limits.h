// Measured limits of a backend's device, beside MachineLimits.
#pragma once
#include <string>
#include <vector>

#include "ops/ops.h"

namespace penstock {

struct DeviceLimit {
  std::string name;  // "copy", "FP8 by mma", "launch"
  double value = 0;
  std::string unit;  // "GB/s", "Tflop/s", "us"
};

struct DeviceLimits {
  std::vector<DeviceLimit> all;  // empty: the backend has no device
  // the rates of an emulated device mean nothing
  bool emulated = false;
};

// REQUIRES: no step is under way. Takes some tenths of a second and at most 1 GiB.
DeviceLimits sample_device(Ops& ops);

}  // namespace penstock
