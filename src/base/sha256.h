// SHA-256, for names that nobody can make two texts have.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

using Sha256 = std::array<uint8_t, 32>;

// Throws std::bad_alloc.
Sha256 sha256(std::string_view text);

// In hexadecimal digits.
std::string sha256_hex(std::string_view text);

}  // namespace penstock
