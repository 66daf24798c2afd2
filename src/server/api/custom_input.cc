#include "server/api/custom_input.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "frontend/json_fields.h"

namespace penstock {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

void put_utf8(uint32_t c, std::string& text) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xc0 | c >> 6), put(0x80 | (c & 0x3f));
  if (c < 0x10000) return put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 0x3f)), put(0x80 | (c >> 6 & 0x3f));
  put(0x80 | (c & 0x3f));
}

// Parses four hexadecimal digits.
uint32_t hex(std::string_view digits) {
  uint32_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

bool is_high(uint32_t c) { return c >= 0xd800 && c < 0xdc00; }
bool is_low(uint32_t c) { return c >= 0xdc00 && c < 0xe000; }

constexpr size_t kUnit = 6;  // bytes of \uXXXX

// Returns the length of the \uXXXX at the start of `text`; below kUnit: incomplete or malformed.
size_t unit_end(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
  return std::min({text.find_first_not_of(kDigits, 2), text.size(), kUnit});
}

// Reads the escape sequence at the start of `text`. Returns its length; 0: incomplete. A malformed
// one ends before the first wrong character, which may be the closing quote of the string.
size_t read_escape(std::string_view text, std::string& out) {
  if (text.size() < 2) return 0;
  constexpr std::string_view kLetters = "nrtbf", kMeant = "\n\r\t\b\f";
  if (text[1] != 'u') {
    const size_t at = kLetters.find(text[1]);
    out += at == kLetters.npos ? text[1] : kMeant[at];
    return 2;
  }
  constexpr uint32_t kUnknown = 0xfffd;
  const size_t end = unit_end(text);
  if (end < kUnit) return end == text.size() ? 0 : (put_utf8(kUnknown, out), end);
  const uint32_t first = hex(text.substr(2, 4));
  if (is_low(first)) return put_utf8(kUnknown, out), kUnit;
  if (!is_high(first)) return put_utf8(first, out), kUnit;
  const std::string_view next = text.substr(kUnit);
  constexpr std::string_view kBegin = "\\u";
  if (!kBegin.starts_with(next.substr(0, 2))) return put_utf8(kUnknown, out), kUnit;
  const size_t next_end = unit_end(next);
  if (next_end < kUnit && next_end == next.size()) return 0;
  const uint32_t second = next_end < kUnit ? kUnknown : hex(next.substr(2, 4));
  if (!is_low(second)) return put_utf8(kUnknown, out), kUnit;
  put_utf8(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), out);
  return 2 * kUnit;
}

}  // namespace

// Decides whether the arguments begin with {"input": ".
void CustomInput::begin() {
  constexpr std::string_view kParts[] = {"{", "\"input\"", ":", "\""};
  for (; n_parts_ < std::size(kParts); ++n_parts_) {
    const std::string_view wanted = kParts[n_parts_];
    n_read_ = std::min(all_.find_first_not_of(kSpace, n_read_), all_.size());
    const std::string_view there = std::string_view(all_).substr(n_read_, wanted.size());
    if (!wanted.starts_with(there)) {
      state_ = State::kOther;
      return;
    }
    if (there.size() < wanted.size()) return;
    n_read_ += wanted.size();
  }
  state_ = State::kInside;
  ahead_ = all_.substr(n_read_);
  all_.clear();
}

std::string CustomInput::read_string() {
  std::string text;
  size_t at = 0;
  while (at < ahead_.size() && state_ == State::kInside) {
    if (ahead_[at] == '"') {
      state_ = State::kAfter;
      complete_ = true;
    } else if (ahead_[at] == '\\') {
      const size_t n = read_escape(std::string_view(ahead_).substr(at), text);
      if (n == 0) break;
      at += n;
    } else {
      const size_t end = std::min(ahead_.find_first_of("\"\\", at), ahead_.size());
      text.append(ahead_, at, end - at);
      at = end;
    }
  }
  ahead_.erase(0, at);
  return text;
}

std::string CustomInput::add(std::string_view piece, bool ends) {
  if (state_ == State::kInside) {
    ahead_ += piece;
  } else if (state_ != State::kAfter) {
    all_ += piece;
    if (state_ == State::kBefore) begin();
  }
  if (state_ == State::kInside) return read_string();
  if (!ends || complete_) return {};
  // Arguments that were cut before the text began have no text.
  if (state_ == State::kBefore && !all_.empty()) return {};
  const auto object = bounded_json<nlohmann::ordered_json>(all_);
  complete_ = state_ == State::kOther && !object.is_discarded();
  const auto& input = get_field(object, "input");
  return input.is_string() ? input.get<std::string>() : all_;
}

std::string custom_input(std::string_view arguments) { return CustomInput().add(arguments, true); }

}  // namespace penstock
