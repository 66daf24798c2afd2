// What one thread of this machine can do at most, to hold the real kernels against: pure reads of memory, and
// multiply-accumulate units with all operands in registers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

struct KernelTable;

// A multiply-accumulate unit.
struct ComputeProbe {
  enum class Operand : uint8_t { kFloats, kIntegers };  // what it multiplies; 16 and 32 bits are floats

  const char* name;  // "AMX BF16"
  Operand operand;
  double operations_per_iteration;  // a multiplication and an addition are two
  // Runs `iterations` of independent multiply-accumulates; returns something that depends on them.
  float (*run)(int64_t iterations);
};

// Reads `bytes` (a multiple of 2,048; data 64-byte aligned); returns a checksum nobody needs.
using ReadProbe = uint64_t (*)(const void* data, size_t bytes);

// Of one instruction set alone.
struct ProbeKernels {
  std::span<const ReadProbe> reads;  // in several orders: which is the fastest depends on the machine
  std::span<const ComputeProbe> units;
};

// All units that this machine has of that instruction set and of those it is built upon; at least one multiplies floats,
// and one integers where the table's kernels do.
std::span<const ReadProbe> read_probes(const KernelTable& table);
std::vector<ComputeProbe> compute_probes(const KernelTable& table);

}  // namespace penstock
