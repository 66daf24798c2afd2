#include "grammar/regex/char_set.h"

#include <unicode/uset.h>

#include <algorithm>
#include <memory>
#include <string>

namespace penstock::grammar {
namespace {

constexpr CodeRange kSurrogates{0xD800, 0xDFFF};

struct SetCloser {
  void operator()(USet* set) const { uset_close(set); }
};
using OwnedSet = std::unique_ptr<USet, SetCloser>;

CharSet from_icu(const USet* set) {
  std::vector<CodeRange> ranges;
  for (int32_t i = 0, n = uset_getItemCount(set); i < n; ++i) {
    UChar32 first = 0, last = 0;
    UErrorCode status = U_ZERO_ERROR;
    // Items after the ranges are strings of several characters, which these classes do not have.
    if (uset_getItem(set, i, &first, &last, nullptr, 0, &status) != 0 || U_FAILURE(status)) break;
    ranges.push_back({static_cast<char32_t>(first), static_cast<char32_t>(last)});
  }
  return CharSet::from_ranges(std::move(ranges));
}

bool is_property_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '=';
  });
}

}  // namespace

CharSet::CharSet(std::initializer_list<CodeRange> ranges)
    : CharSet(from_ranges(std::vector<CodeRange>(ranges))) {}

CharSet CharSet::all() { return CharSet{{0, kLastCodePoint}}; }

CharSet CharSet::from_ranges(std::vector<CodeRange> ranges) {
  std::vector<CodeRange> split;
  for (const CodeRange& r : ranges) {
    const char32_t last = std::min(r.last, kLastCodePoint);
    if (r.first > last) continue;
    if (r.first < kSurrogates.first)
      split.push_back({r.first, std::min<char32_t>(last, kSurrogates.first - 1)});
    if (last > kSurrogates.last)
      split.push_back({std::max<char32_t>(r.first, kSurrogates.last + 1), last});
  }
  std::sort(split.begin(), split.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  CharSet set;
  for (const CodeRange& r : split) {
    if (!set.ranges_.empty() && r.first <= set.ranges_.back().last + 1) {
      set.ranges_.back().last = std::max(set.ranges_.back().last, r.last);
    } else {
      set.ranges_.push_back(r);
    }
  }
  return set;
}

std::optional<CharSet> CharSet::property(std::string_view name) {
  if (!is_property_name(name)) return std::nullopt;
  std::u16string pattern = u"[\\p{";
  pattern.append(name.begin(), name.end());
  pattern += u"}]";
  UErrorCode status = U_ZERO_ERROR;
  const OwnedSet set(
      uset_openPattern(pattern.data(), static_cast<int32_t>(pattern.size()), &status));
  if (U_FAILURE(status) || set == nullptr) return std::nullopt;
  return from_icu(set.get());
}

bool CharSet::contains(char32_t c) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), c,
                       [](char32_t value, const CodeRange& r) { return value < r.first; });
  return after != ranges_.begin() && c <= std::prev(after)->last;
}

CharSet CharSet::complement() const {
  std::vector<CodeRange> gaps;
  char32_t next = 0;
  for (const CodeRange& r : ranges_) {
    if (r.first > next) gaps.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLastCodePoint) gaps.push_back({next, kLastCodePoint});
  return from_ranges(std::move(gaps));
}

CharSet operator|(const CharSet& a, const CharSet& b) {
  std::vector<CodeRange> both(a.ranges_);
  both.insert(both.end(), b.ranges_.begin(), b.ranges_.end());
  return CharSet::from_ranges(std::move(both));
}

CharSet operator&(const CharSet& a, const CharSet& b) {
  CharSet result;
  auto x = a.ranges_.begin();
  auto y = b.ranges_.begin();
  while (x != a.ranges_.end() && y != b.ranges_.end()) {
    const CodeRange common{std::max(x->first, y->first), std::min(x->last, y->last)};
    if (common.first <= common.last) result.ranges_.push_back(common);
    (x->last < y->last ? x : y)++;
  }
  return result;
}

CharSet ignore_case(const CharSet& set) {
  const OwnedSet folded(uset_openEmpty());
  for (const CodeRange& r : set.ranges()) {
    uset_addRange(folded.get(), static_cast<UChar32>(r.first), static_cast<UChar32>(r.last));
  }
  uset_closeOver(folded.get(), USET_CASE_INSENSITIVE);
  return from_icu(folded.get());
}

namespace classes {

const CharSet& digit() {
  static const CharSet set{{'0', '9'}};
  return set;
}
const CharSet& word() {
  static const CharSet set{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return set;
}
const CharSet& space() {
  static const CharSet set{{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                           {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                           {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return set;
}
const CharSet& line_end() {
  static const CharSet set{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return set;
}
const CharSet& unicode_digit() {
  static const CharSet set = CharSet::property("Nd").value_or(digit());
  return set;
}
const CharSet& unicode_word() {
  static const CharSet set = [] {
    CharSet all = word();
    for (const char* name : {"Alphabetic", "M", "Nd", "Pc", "Join_Control"})
      all = all | CharSet::property(name).value_or(CharSet{});
    return all;
  }();
  return set;
}
const CharSet& unicode_space() {
  static const CharSet set = CharSet::property("White_Space").value_or(space());
  return set;
}

}  // namespace classes
}  // namespace penstock::grammar
