// What this machine has.
#pragma once
#include <cstdint>

namespace penstock {

// Bytes of memory that a process of this machine may use: what is built in, or what its control group allows if that is less.
int64_t machine_memory();

}  // namespace penstock
