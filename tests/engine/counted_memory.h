// The test program's operator new: counts, and fails on demand.
#pragma once
#include <atomic>
#include <cstdint>

namespace penstock {

extern std::atomic<int64_t> n_allocations;
// of this thread before they fail; -1: they do not
extern thread_local int64_t allocations_left;
// how many fail before they work again; -1: all
extern thread_local int allocations_to_refuse;

}  // namespace penstock
