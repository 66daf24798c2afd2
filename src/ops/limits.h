// Measured limits of a backend, to compare decode and prefill with.
#pragma once
#include <cstdint>
#include <string>

namespace penstock {

struct ComputeLimit {
  std::string unit;  // "AMX BF16"
  // of all its units, with operands in registers
  double operations_per_second = 0;
};

struct MachineLimits {
  double read_bytes_per_second = 0;  // of memory
  // the fastest unit for weights of 16 and 32 bits
  ComputeLimit floats;
  // The fastest unit for narrower weights: not slower than floats, to which they can be converted.
  ComputeLimit integers;
};

// Operations for one token of a prompt, by the fastest unit for them.
struct TokenOperations {
  double of_floats = 0, of_integers = 0;
};

const ComputeLimit& faster(const ComputeLimit& a, const ComputeLimit& b);

// Returns the higher of each of two measured limits, since nothing makes a machine seem faster than
// it is.
MachineLimits better(const MachineLimits& a, const MachineLimits& b);

// Returns the maximum of prompt tokens per second; 0 if nothing was measured.
double prefill_limit(const MachineLimits& limits, const TokenOperations& token);

}  // namespace penstock
