// Exact decimal numbers: bounds and values of a schema as they were written, never rounded.
#pragma once
#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::grammar {

// digits * 10^exponent, negated if negative. No leading and no trailing zeros; zero has no digits.
class Decimal {
 public:
  static constexpr int kMaxExponent = 100'000;

  Decimal() = default;
  Decimal(int64_t value);  // NOLINT(google-explicit-constructor): numbers are decimals
  // A JSON number. nullopt: not one, or its exponent is beyond kMaxExponent.
  static std::optional<Decimal> parse(std::string_view text);

  bool is_zero() const { return digits_.empty(); }
  bool negative() const { return negative_; }
  bool is_integer() const { return is_zero() || exponent_ >= 0; }
  Decimal operator-() const;
  friend std::strong_ordering operator<=>(const Decimal& a, const Decimal& b);
  friend bool operator==(const Decimal& a, const Decimal& b) = default;

  // Of the absolute value: digits before the point ("0" if none) and behind it ("" if none).
  std::string whole_digits() const;
  std::string fraction_digits() const;
  // How many digits whole_digits() and fraction_digits() have together, without making them.
  size_t n_digits() const;
  size_t n_fraction_digits() const { return exponent_ < 0 ? static_cast<size_t>(-exponent_) : 0; }
  // abs(value) * 10^power; nullopt where that is no integer or more than 2^62.
  std::optional<uint64_t> scaled(size_t power) const;
  std::optional<int64_t> to_int() const;  // nullopt: no integer, or beyond 2^62
  // A JSON number: "-12.5", "1e400". Equal numbers give equal texts.
  std::string text() const;
  // Other texts that programs write: of numbers that are very large or small, "1e-07", "1E-7", "1.5e+300"; of zero "-0.0". None
  // where who reads them as a double gets another number than of text(): of more than 17 digits, or integers between doubles.
  std::vector<std::string> texts_of_programs() const;

 private:
  std::strong_ordering compare_magnitude(const Decimal& other) const;
  bool negative_ = false;
  std::string digits_;
  int exponent_ = 0;
};

}  // namespace penstock::grammar
