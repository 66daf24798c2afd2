// The memory of this machine.
#pragma once
#include <cstdint>

namespace penstock {

// Returns the bytes of memory that this process may use: the physical memory, or the limit of its
// control group if that is less.
int64_t machine_memory();

}  // namespace penstock
