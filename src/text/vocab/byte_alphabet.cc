#include "text/vocab/byte_alphabet.h"

#include <array>

#include "text/unicode/unicode.h"

namespace penstock {
namespace {

constexpr int kAlphabetEnd = 0x144;  // exclusive end of its code points

struct Alphabet {
  std::array<char32_t, 256> to_char;
  std::array<int16_t, kAlphabetEnd> to_byte;
};

// Printable Latin-1 maps to itself; the other 68 bytes map to U+0100 and the following.
constexpr Alphabet make_alphabet() {
  Alphabet a{};
  for (auto& byte : a.to_byte) byte = -1;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    a.to_char[byte] = printable ? static_cast<char32_t>(byte) : next++;
    a.to_byte[a.to_char[byte]] = static_cast<int16_t>(byte);
  }
  return a;
}
constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) unicode::append(out, kAlphabet.to_char[static_cast<unsigned char>(c)]);
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded d = unicode::decode(text, i);
    if (!d.valid || d.code >= kAlphabetEnd || kAlphabet.to_byte[d.code] < 0) return std::nullopt;
    out += static_cast<char>(kAlphabet.to_byte[d.code]);
    i += d.length;
  }
  return out;
}

}  // namespace penstock
