// What one thread of this machine can do at most, to hold the real kernels against: a pure read of memory,
// and the fastest multiply-accumulate unit with all operands in registers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock {

struct ProbeKernels {
  // Reads `bytes` (a multiple of 2,048; data 64-byte aligned) as four streams; returns a checksum nobody
  // needs.
  uint64_t (*read)(const void* data, size_t bytes);
  // Runs `iterations` of independent multiply-accumulates; returns something that depends on them.
  float (*compute)(int64_t iterations);
  double flops_per_iteration;
  const char* compute_name;  // "AMX BF16"
};

// The probes of an instruction set by the name of its kernel table.
const ProbeKernels& probe_kernels(std::string_view isa);

}  // namespace penstock
