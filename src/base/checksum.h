// A checksum as fast as memory. It detects damage, not forgery: it is not cryptographic.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

// Returns a checksum that any change of a single 8-byte word changes; other changes go undetected
// with probability 2^-64. The same on every machine.
uint64_t checksum64(std::span<const std::byte> bytes);

}  // namespace penstock
