// Times of files as stamps.
#pragma once
#include <cstdint>
#include <ctime>

namespace penstock {

// Nanoseconds since 1970 modulo 2^64, to be compared for equality only: a file may claim any time, also one
// beyond the year 2262, whose nanoseconds no 64 bits hold.
inline int64_t nanoseconds_of(const timespec& time) {
  return static_cast<int64_t>(static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u +
                              static_cast<uint64_t>(time.tv_nsec));
}

}  // namespace penstock
