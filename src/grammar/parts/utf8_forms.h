// The well-formed byte sequences of UTF-8 beyond ASCII: Unicode Standard, table 3-7.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace penstock::grammar::utf8 {

struct ByteRange {
  uint8_t first, last;  // inclusive
  bool has(uint8_t byte) const { return byte >= first && byte <= last; }
};

struct Form {
  uint8_t n_bytes;
  std::array<ByteRange, 4> ranges;
  std::span<const ByteRange> parts() const { return std::span(ranges).first(n_bytes); }
};

inline constexpr ByteRange kTail{0x80, 0xBF};
inline constexpr std::array<Form, 8> kForms{{
    {2, {{{0xC2, 0xDF}, kTail}}},
    {3, {{{0xE0, 0xE0}, {0xA0, 0xBF}, kTail}}},
    {3, {{{0xE1, 0xEC}, kTail, kTail}}},
    {3, {{{0xED, 0xED}, {0x80, 0x9F}, kTail}}},
    {3, {{{0xEE, 0xEF}, kTail, kTail}}},
    {4, {{{0xF0, 0xF0}, {0x90, 0xBF}, kTail, kTail}}},
    {4, {{{0xF1, 0xF3}, kTail, kTail, kTail}}},
    {4, {{{0xF4, 0xF4}, {0x80, 0x8F}, kTail, kTail}}},
}};

}  // namespace penstock::grammar::utf8
