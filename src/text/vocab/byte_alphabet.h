// GPT-2's printable alphabet of the 256 byte values, in which byte-level vocabularies are written.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// Every byte as its character of the alphabet ("\n" -> "Ċ").
std::string to_byte_alphabet(std::string_view bytes);
// The reverse; nothing when a character is not of the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace penstock
