#include "ops/limits.h"

#include <algorithm>

namespace penstock {

const ComputeLimit& faster(const ComputeLimit& a, const ComputeLimit& b) {
  return b.operations_per_second > a.operations_per_second ? b : a;
}

MachineLimits better(const MachineLimits& a, const MachineLimits& b) {
  return {std::max(a.read_bytes_per_second, b.read_bytes_per_second), faster(a.floats, b.floats),
          faster(a.integers, b.integers)};
}

double prefill_limit(const MachineLimits& limits, const TokenOperations& token) {
  const double floats = limits.floats.operations_per_second,
               integers = limits.integers.operations_per_second;
  if (floats <= 0 || integers <= 0) return 0;
  const double seconds = token.of_floats / floats + token.of_integers / integers;
  return seconds > 0 ? 1 / seconds : 0;
}

}  // namespace penstock
