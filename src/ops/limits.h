// A backend's own limits, measured: what decode and prefill are held against.
#pragma once
#include <cstdint>
#include <string>

namespace penstock {

struct ComputeLimit {
  std::string unit;                  // "AMX BF16"
  double operations_per_second = 0;  // of the whole backend, operands in registers
};

struct MachineLimits {
  double read_bytes_per_second = 0;  // of memory
  ComputeLimit floats;               // the fastest unit for weights of 16 and 32 bits
  ComputeLimit integers;             // and for narrower ones: no slower, since these can be made floats
};

// What a token of a prompt needs, by the unit that may do it at best.
struct TokenOperations {
  double of_floats = 0, of_integers = 0;
};

const ComputeLimit& faster(const ComputeLimit& a, const ComputeLimit& b);

// Limits measured twice: of each the higher, since nothing makes a machine seem faster than it is.
MachineLimits better(const MachineLimits& a, const MachineLimits& b);

// Tokens of a prompt per second, at most; 0 where nothing was measured.
double prefill_limit(const MachineLimits& limits, const TokenOperations& token);

}  // namespace penstock
