#include "grammar/parts/decimal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace penstock::grammar {
namespace {

// of numbers that programs write with an exponent
constexpr size_t kMostDoubleDigits = 17;
// of integers that programs write without an exponent
constexpr int64_t kMostIntegerDigits = 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether the integer is exactly representable as a double.
bool is_double(const std::string& digits) {
  double value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return fmt::format("{:.0f}", value) == digits;
}

// Reads digits from text[at] on; returns their number.
size_t read_digits(std::string_view text, size_t& at, std::string& out) {
  const size_t begin = at;
  while (at < text.size() && is_digit(text[at])) out += text[at++];
  return at - begin;
}

std::optional<int> read_exponent(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Decimal::Decimal(int64_t value) { *this = *parse(std::to_string(value)); }

std::optional<Decimal> Decimal::parse(std::string_view text) {
  Decimal result;
  size_t at = 0;
  result.negative_ = text.starts_with('-');
  at += result.negative_;
  if (read_digits(text, at, result.digits_) == 0) return std::nullopt;
  int64_t exponent = 0;
  if (at < text.size() && text[at] == '.') {
    ++at;
    const size_t n = read_digits(text, at, result.digits_);
    if (n == 0) return std::nullopt;
    exponent = -static_cast<int64_t>(n);
  }
  if (at < text.size() && (text[at] | 32) == 'e') {
    const auto written = read_exponent(text.substr(at + 1));
    if (!written) return std::nullopt;
    exponent += *written;
    at = text.size();
  }
  if (at != text.size()) return std::nullopt;
  const size_t last = result.digits_.find_last_not_of('0');
  if (last == std::string::npos) return Decimal();
  exponent += static_cast<int64_t>(result.digits_.size() - 1 - last);
  result.digits_.erase(last + 1);
  result.digits_.erase(0, result.digits_.find_first_not_of('0'));
  const auto magnitude = exponent + static_cast<int64_t>(result.digits_.size());
  if (std::abs(exponent) > kMaxExponent || std::abs(magnitude) > kMaxExponent) return std::nullopt;
  result.exponent_ = static_cast<int>(exponent);
  return result;
}

Decimal Decimal::operator-() const {
  Decimal result = *this;
  result.negative_ = !negative_ && !is_zero();
  return result;
}

std::strong_ordering Decimal::compare_magnitude(const Decimal& other) const {
  if (is_zero() || other.is_zero()) return !is_zero() <=> !other.is_zero();
  const auto place = [](const Decimal& d) {
    return d.exponent_ + static_cast<int64_t>(d.digits_.size());
  };
  if (place(*this) != place(other)) return place(*this) <=> place(other);
  return digits_.compare(other.digits_) <=> 0;
}

std::strong_ordering operator<=>(const Decimal& a, const Decimal& b) {
  if (a.negative_ != b.negative_)
    return a.negative_ ? std::strong_ordering::less : std::strong_ordering::greater;
  return a.negative_ ? b.compare_magnitude(a) : a.compare_magnitude(b);
}

std::string Decimal::whole_digits() const {
  const auto n = static_cast<int64_t>(digits_.size()) + exponent_;
  if (is_zero() || n <= 0) return "0";
  if (exponent_ >= 0) return digits_ + std::string(exponent_, '0');
  return digits_.substr(0, n);
}

std::string Decimal::fraction_digits() const {
  if (is_zero() || exponent_ >= 0) return "";
  const auto n = static_cast<int64_t>(digits_.size()) + exponent_;
  return n >= 0 ? digits_.substr(n) : std::string(-n, '0') + digits_;
}

size_t Decimal::n_digits() const {
  if (is_zero()) return 1;
  const auto n = static_cast<int64_t>(digits_.size()) + exponent_;
  return static_cast<size_t>(std::max<int64_t>(1, n)) + n_fraction_digits();
}

std::optional<uint64_t> Decimal::scaled(size_t power) const {
  const int64_t zeros = exponent_ + static_cast<int64_t>(power);
  if (is_zero()) return 0;
  if (zeros < 0 || digits_.size() + zeros > 18) return std::nullopt;
  uint64_t value = 0;
  for (const char c : digits_) value = value * 10 + (c - '0');
  for (int64_t i = 0; i < zeros; ++i) value *= 10;
  return value;
}

std::optional<int64_t> Decimal::to_int() const {
  const auto magnitude = scaled(0);
  if (!magnitude) return std::nullopt;
  return negative_ ? -static_cast<int64_t>(*magnitude) : static_cast<int64_t>(*magnitude);
}

std::string Decimal::text() const {
  std::string out = negative_ ? "-" : "";
  if (n_digits() > 40)
    return out + digits_ + (exponent_ != 0 ? "e" + std::to_string(exponent_) : "");
  out += whole_digits();
  if (const std::string fraction = fraction_digits(); !fraction.empty()) out += "." + fraction;
  return out;
}

std::vector<std::string> Decimal::texts_of_programs() const {
  if (is_zero()) return {"-0.0"};
  // Python uses exponents from 1e16 on and below 1e-4; other languages use narrower ranges of
  // exponents.
  const int64_t power = exponent_ + static_cast<int64_t>(digits_.size()) - 1;
  if ((power >= -4 && power < 16) || digits_.size() > kMostDoubleDigits) return {};
  // Integers that programs write in full are read as spelled.
  if (power >= 0 && power < kMostIntegerDigits && !is_double(whole_digits())) return {};
  std::string mantissa = (negative_ ? "-" : "") + digits_.substr(0, 1);
  if (digits_.size() > 1) mantissa += "." + digits_.substr(1);
  const std::string size = std::to_string(std::abs(power));
  std::vector<std::string> texts;
  for (const char* e : {"e", "E"}) {
    texts.push_back(mantissa + e + (power < 0 ? "-" : "") + size);
    if (power > 0) texts.push_back(mantissa + e + "+" + size);
    if (size.size() == 1) texts.push_back(mantissa + e + "-0" + size);
  }
  return texts;
}

}  // namespace penstock::grammar
