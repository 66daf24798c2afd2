// The machine's own limits, measured: the two numbers that decode and prefill are held against.
#pragma once
#include <string>

namespace penstock {

struct MachineLimits {
  double read_bytes_per_second = 0;  // all threads, a buffer much larger than the caches
  double flops_per_second = 0;       // all threads, operands in registers
  std::string compute_unit;          // "AMX BF16"
  int n_threads = 0;
};

// Takes about half a second and 512 MiB. Medians of several rounds; meaningless beside other load.
MachineLimits measure_limits(int n_threads);

}  // namespace penstock
