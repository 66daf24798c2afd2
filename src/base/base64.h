// Base64 (RFC 4648).
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace penstock {

enum class Base64 : unsigned char {
  kPlain,
  // White space is skipped, '-' and '_' are digits too (URLs), and a last digit that gives no byte is
  // an error.
  kLoose
};

// Returns the bytes, or the position of the first character that is none of base64. Padding may be
// missing.
tl::expected<std::string, size_t> decode_base64(std::string_view text, Base64 form);

// Returns the text of bytes, with padding.
std::string encode_base64(std::string_view bytes);

}  // namespace penstock
