// Exact decimal numbers: bounds and values of a schema as they were written, never rounded.
#pragma once
#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::grammar {

// A number digits * 10^exponent, negated if negative. There are no leading or trailing zeros; zero
// has no digits.
class Decimal {
 public:
  static constexpr int kMaxExponent = 100'000;

  Decimal() = default;
  Decimal(int64_t value);  // NOLINT(google-explicit-constructor): numbers are decimals
  // Parses a JSON number; nullopt: it is none, or its exponent is beyond kMaxExponent.
  static std::optional<Decimal> parse(std::string_view text);

  bool is_zero() const { return digits_.empty(); }
  bool negative() const { return negative_; }
  bool is_integer() const { return is_zero() || exponent_ >= 0; }
  Decimal operator-() const;
  friend std::strong_ordering operator<=>(const Decimal& a, const Decimal& b);
  friend bool operator==(const Decimal& a, const Decimal& b) = default;

  // Digits of the absolute value before the decimal point ("0" if none) and after it ("" if none).
  std::string whole_digits() const;
  std::string fraction_digits() const;
  // Returns the length of whole_digits() and fraction_digits() together, without making them.
  size_t n_digits() const;
  size_t n_fraction_digits() const { return exponent_ < 0 ? static_cast<size_t>(-exponent_) : 0; }
  // Returns abs(value) * 10^power; nullopt when that is no integer or exceeds 2^62.
  std::optional<uint64_t> scaled(size_t power) const;
  std::optional<int64_t> to_int() const;  // nullopt: no integer, or beyond 2^62
  // Returns a JSON number: "-12.5", "1e400". Equal numbers give equal texts.
  std::string text() const;
  // Returns other spellings that programs write: of very large or small numbers "1e-07", "1E-7",
  // "1.5e+300"; of zero "-0.0". Empty for numbers that such a spelling cannot hold exactly: more
  // than 17 digits, or integers between doubles.
  std::vector<std::string> texts_of_programs() const;

 private:
  std::strong_ordering compare_magnitude(const Decimal& other) const;
  bool negative_ = false;
  std::string digits_;
  int exponent_ = 0;
};

}  // namespace penstock::grammar
