#include "base/base64.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace penstock {
namespace {

constexpr int8_t kNone = -1, kSpace = -2;

constexpr std::array<int8_t, 256> digits_of(Base64 form) {
  std::array<int8_t, 256> digits{};
  digits.fill(kNone);
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kDigits.size(); ++i)
    digits[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  if (form == Base64::kPlain) return digits;
  for (const char c : {' ', '\t', '\r', '\n'}) digits[static_cast<unsigned char>(c)] = kSpace;
  digits['-'] = 62, digits['_'] = 63;
  return digits;
}

}  // namespace

tl::expected<std::string, size_t> decode_base64(std::string_view text, Base64 form) {
  static constexpr std::array kTables = {digits_of(Base64::kPlain), digits_of(Base64::kLoose)};
  const std::array<int8_t, 256>& digits = kTables[static_cast<size_t>(form)];
  const auto digit_of = [&](char c) { return digits[static_cast<unsigned char>(c)]; };
  while (!text.empty() && (text.back() == '=' || digit_of(text.back()) == kSpace))
    text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int n_bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int8_t digit = digit_of(text[i]);
    if (digit == kSpace) continue;
    if (digit == kNone) return tl::unexpected(i);
    bits = bits << 6 | static_cast<uint32_t>(digit), n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    out.push_back(static_cast<char>(bits >> n_bits & 0xFF));
  }
  if (form == Base64::kLoose && n_bits == 6) return tl::unexpected(text.size());
  return out;
}

std::string encode_base64(std::string_view bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < n ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (size_t i = 0; i < 4; ++i) text += i <= n ? kDigits[group >> (18 - 6 * i) & 63U] : '=';
  }
  return text;
}

}  // namespace penstock
