// What the CPU's threads can do at most, by all of them and by one alone: where these are far from a multiple of each other,
// threads share cores.
#pragma once
#include <string>
#include <vector>

namespace penstock {

struct ThreadLimit {
  std::string name;  // of the unit, or "read"
  double all = 0, one = 0;
};

// Of every unit of the instruction set in use, operations per second; then "read", bytes per second. The best of so many
// samples of a few milliseconds.
std::vector<ThreadLimit> sample_threads(int n_threads, int n_samples);

// Where the instruction set in use can unpack weights before the products of many rows or between them (kernels/tile_unpacking.h):
// what it does, and the operations per second of one thread that either reaches. Else nothing is chosen.
struct UnpackingRates {
  std::string chosen;  // "before", "between" or ""
  double before = 0, between = 0;
};
UnpackingRates sample_unpacking();

}  // namespace penstock
