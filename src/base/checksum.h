// A checksum at the speed of memory. It finds damage, not forgery.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

// Any change of a single 8-byte word changes it; other changes go unnoticed with a chance of 2^-64. The same on every
// machine.
uint64_t checksum64(std::span<const std::byte> bytes);

}  // namespace penstock
