// Measured limits of the CPU, by all threads and by one. If the ratio is far below the number of
// threads, threads share cores.
#pragma once
#include <string>
#include <vector>

namespace penstock {

struct ThreadLimit {
  std::string name;  // of the unit, or "read"
  double all = 0, one = 0;
};

// Returns operations per second of every unit of the instruction set in use, then bytes per second
// as "read": the best of n_samples samples of a few milliseconds.
std::vector<ThreadLimit> sample_threads(int n_threads, int n_samples);

// For instruction sets that can unpack weights before the products of tiles or between them
// (kernels/tile_unpacking.h): the choice, and the operations per second of one thread with either.
// Empty for others.
struct UnpackingRates {
  std::string chosen;  // "before", "between" or ""
  double before = 0, between = 0;
};
UnpackingRates sample_unpacking();

}  // namespace penstock
