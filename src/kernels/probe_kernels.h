// Upper limits of one thread on this machine, to compare kernels with: pure reads of memory, and
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
  enum class Operand : uint8_t {
    kFloats,
    kIntegers
  };  // type of operands; numbers of 16 and 32 bits are floats

  const char* name;  // "AMX BF16"
  Operand operand;
  double operations_per_iteration;  // a multiplication and an addition are two
  // Runs `iterations` of independent multiply-accumulates; returns something that depends on them.
  float (*run)(int64_t iterations);
};

// Reads `bytes`. REQUIRES: `bytes` is a multiple of 2,048 and data 64-byte aligned. Returns a
// checksum, so that the reads are not optimized away.
using ReadProbe = uint64_t (*)(const void* data, size_t bytes);

// Probes of one instruction set.
struct ProbeKernels {
  // in several orders of reads, since the fastest one depends on the machine
  std::span<const ReadProbe> reads;
  std::span<const ComputeProbe> units;
};

// Returns the probes of the instruction set and of those that it extends. At least one unit
// multiplies floats, and one integers if the table's kernels do.
std::span<const ReadProbe> read_probes(const KernelTable& table);
std::vector<ComputeProbe> compute_probes(const KernelTable& table);

}  // namespace penstock
