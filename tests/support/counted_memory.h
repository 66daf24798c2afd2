// Counted and refused memory: operator new of a test binary that uses one of these, of all its threads.
#pragma once
#include <atomic>
#include <cstdint>

namespace penstock {

extern std::atomic<int64_t> n_allocations;
// of this thread before they throw std::bad_alloc; -1: they do not
extern constinit thread_local int64_t allocations_left;
// how many are refused then; -1: all
extern constinit thread_local int allocations_to_refuse;

}  // namespace penstock
