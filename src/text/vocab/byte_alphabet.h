// GPT-2's byte alphabet: a printable character for each of the 256 byte values, used by byte-level
// vocabularies.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// Replaces every byte by its character of the alphabet ("\n" -> "Ċ").
std::string to_byte_alphabet(std::string_view bytes);
// The inverse of to_byte_alphabet(); nullopt when a character is not in the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace penstock
