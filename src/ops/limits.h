// A backend's own limits, measured: the two numbers that decode and prefill are held against.
#pragma once
#include <string>

namespace penstock {

struct MachineLimits {
  double read_bytes_per_second = 0;  // of memory, a buffer much larger than the caches
  double flops_per_second = 0;       // of the unit that computes products, operands in registers
  std::string compute_unit;          // "AMX BF16"
  int n_threads = 0;                 // of the host
};

}  // namespace penstock
