// What a backend's device does at most, beside MachineLimits.
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
  std::vector<DeviceLimit> all;  // none: the backend is no such device
  bool emulated = false;         // then they mean nothing
};

// Between two steps. Takes some tenths of a second, and 1 GiB at most.
DeviceLimits sample_device(Ops& ops);

}  // namespace penstock
