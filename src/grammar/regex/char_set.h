// Sets of Unicode scalar values: the values of character classes in regular expressions.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace penstock::grammar {

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

struct CodeRange {
  char32_t first, last;  // inclusive
  bool operator==(const CodeRange&) const = default;
};

// Ascending ranges that neither touch nor overlap. Surrogates are no members of any set.
class CharSet {
 public:
  CharSet() = default;
  CharSet(std::initializer_list<CodeRange> ranges);
  static CharSet all();
  static CharSet of(char32_t c) { return CharSet{{c, c}}; }
  // Makes a set of ranges in any order, which may overlap.
  static CharSet from_ranges(std::vector<CodeRange> ranges);
  // Returns the set of \p{name}: a general category, a binary property, or Script=X / sc=X.
  // nullopt: no such property.
  static std::optional<CharSet> property(std::string_view name);

  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t c) const;
  std::span<const CodeRange> ranges() const { return ranges_; }
  bool operator==(const CharSet&) const = default;

  CharSet complement() const;
  friend CharSet operator|(const CharSet& a, const CharSet& b);
  friend CharSet operator&(const CharSet& a, const CharSet& b);

 private:
  std::vector<CodeRange> ranges_;
};

// The classes of ECMAScript: \d \w \s are ASCII, ASCII, and white space with line ends; "." is all
// but line ends.
namespace classes {
const CharSet& digit();
const CharSet& word();
const CharSet& space();
const CharSet& line_end();
// The classes \d, \w and \s of Unicode (UTS 18, annex C).
const CharSet& unicode_digit();
const CharSet& unicode_word();
const CharSet& unicode_space();
}  // namespace classes

// Returns the set with both cases of every letter (simple case folding).
CharSet ignore_case(const CharSet& set);

}  // namespace penstock::grammar
