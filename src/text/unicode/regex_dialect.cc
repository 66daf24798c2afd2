#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/unicode/regex_dialect.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/ascii.h"
#include "text/unicode/newer_characters.h"

namespace penstock {
namespace {

// White_Space without U+180E, which only PCRE2's \s includes.
constexpr std::string_view kSpaceRanges =
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr std::string_view kNotSpaceRanges =
    "\\x{00}-\\x{08}\\x{0e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{"
    "1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-"
    "\\x{d7ff}\\x{e000}-\\x{10ffff}";
// Characters of \w inside a class, and outside.
constexpr std::string_view kWordInClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kWord =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
// With the characters that became alphabetic after PCRE2's version of Unicode.
constexpr std::string_view kAlphabetic =
    "\\p{Alphabetic}\\x{363}-\\x{36f}\\x{c04}\\x{f82}\\x{f83}\\x{1dd3}-\\x{1de6}\\x{11080}\\x{"
    "11081}";
constexpr std::string_view kAlphanumeric =
    "\\p{Alphabetic}\\x{363}-\\x{36f}\\x{c04}\\x{f82}\\x{f83}\\x{1dd3}-\\x{1de6}\\x{11080}\\x{"
    "11081}\\p{Nd}";
constexpr std::string_view kLowercase = "\\p{Lowercase}\\x{10fc}\\x{a7f2}-\\x{a7f4}\\x{ab69}";
// POSIX classes; those not listed mean the same in both dialects.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kPosix = {{
    {"alnum", kAlphanumeric},
    {"alpha", kAlphabetic},
    {"blank", "\\x{09}\\p{Zs}"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"graph", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"},
    {"lower", kLowercase},
    {"print", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}\\p{Zs}"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", kSpaceRanges},
    {"upper", "\\p{Uppercase}"},
    {"word", kWordInClass},
    {"xdigit", "0-9a-fA-F"},
}};
constexpr int kMaxClassDepth = 16;  // nesting of classes

// Long names of general categories, lower case, without underscores.
struct Category {
  std::string_view name, code;
};
constexpr std::array<Category, 38> kCategories = {{
    {"letter", "L"},
    {"casedletter", "L&"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"surrogate", "Cs"},
    {"privateuse", "Co"},
    {"unassigned", "Cn"},
}};

bool compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// Returns a name in lower case without separators; long names of categories become short ones.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '_' && c != ' ' && c != '-') plain += ascii_lower(c);
  }
  const auto found = std::ranges::find(kCategories, plain, &Category::name);
  if (found == kCategories.end()) return plain;
  plain = found->code;
  plain = ascii_lower(plain);
  return plain;
}

// Returns PCRE2's name of a property. A script's plain name means Script_Extensions in PCRE2, and
// Script in the other dialects.
std::string property_name(std::string_view name) {
  const std::string plain = plain_name(name);
  const auto is_code = [&](const Category& one) {
    return std::ranges::equal(plain, one.code, [](char a, char b) { return a == ascii_lower(b); });
  };
  if (const auto found = std::ranges::find_if(kCategories, is_code); found != kCategories.end())
    return std::string(found->code);
  if (plain.size() <= 2 || plain.find_first_of("=:^&") != std::string::npos)
    return std::string(name);
  std::string script = "sc:" + std::string(name);
  return compiles("\\p{" + script + "}") ? script : std::string(name);
}

using unicode::Has;
using unicode::NewerCharacters;

std::string range_of(const NewerCharacters& one) {
  return fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(one.first),
                     static_cast<uint32_t>(one.last));
}

// Items of a class by which a property (or its complement) differs from PCRE2's tables: newer
// characters to add, and characters to remove.
struct Newer {
  std::string more, less;
};
Newer newer_of(std::string_view property, bool negated) {
  const std::string name = plain_name(property);
  Newer newer;
  for (const NewerCharacters& one : unicode::newer_characters()) {
    NewerCharacters known = one;
    known.category = one.known_category;
    if (one.known_category == "Cn") known.script = known.short_script = "unknown", known.flags = 0;
    const Has now = has_property(one, name), before = has_property(known, name);
    if (now == Has::kUnknown) return {};
    const bool has = (now == Has::kYes) != negated, had = (before == Has::kYes) != negated;
    if (has && !had) newer.more += range_of(one);
    if (had && !has) newer.less += range_of(one);
  }
  return newer;
}

// Extends the items of a class (properties, none negated, and characters) by newer characters.
std::string with_newer(std::string_view items) {
  std::string out(items);
  constexpr std::string_view kProperty = "\\p{";
  for (size_t at = 0; (at = items.find(kProperty, at)) != std::string_view::npos;) {
    at += kProperty.size();
    out += newer_of(items.substr(at, items.find('}', at) - at), false).more;
  }
  return out;
}

// Translates a pattern in one pass.
class Translator {
 public:
  Translator(std::string_view pattern, Characters characters)
      : pattern_(pattern), newer_(characters == Characters::kWithNewer) {}

  Result<std::string> run() {
    std::string out;
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      const bool goes_on = (c & 0xC0) == 0x80 || c == '*' || c == '+' || c == '?';
      if (c == '{' && interval(out)) continue;
      if (!goes_on && c != ')') atom_ = out.size();
      if (c == '(') groups_.push_back(out.size());
      if (c == ')' && !groups_.empty()) {
        atom_ = groups_.back();
        groups_.pop_back();
      }
      if (c == '\\') {
        escape(nullptr, out);
      } else if (c == '[') {
        ASSIGN_OR_RETURN(const Class whole, read_class(0));
        out += written(whole);
      } else {
        out += c;
        ++at_;
      }
    }
    return out;
  }

 private:
  // The intersection of its operands, or its complement if `negated`.
  struct Class {
    struct Union {
      std::string items;  // items of a PCRE2 class
      std::vector<Class> classes;
    };
    bool negated = false;
    std::vector<Union> operands = std::vector<Union>(1);
  };

  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  // Translates {n}, {n,}, {,m} or {n,m} at the current position. A following + repeats the whole,
  // and so does ? after {n}.
  bool interval(std::string& out) {
    size_t end = at_ + 1;
    std::string numbers[2];
    int n = 0;
    for (; end < pattern_.size() && pattern_[end] != '}'; ++end) {
      if (pattern_[end] == ',' && n == 0) {
        ++n;
      } else if (is_ascii_digit(pattern_[end])) {
        numbers[n] += pattern_[end];
      } else {
        return false;
      }
    }
    if (end == pattern_.size() || (numbers[0].empty() && numbers[1].empty())) return false;
    at_ = end + 1;
    const bool repeated = next_is("+") || (next_is("?") && n == 0);
    if (repeated) out.insert(atom_, "(?:");
    out += "{" + (numbers[0].empty() ? "0" : numbers[0]) + (n > 0 ? "," + numbers[1] : "") + "}";
    if (repeated) out += ")";
    return true;
  }

  // Returns the length of a POSIX class such as "[:alpha:]" at the current position, or 0.
  size_t posix_name_size() const {
    if (!next_is("[:")) return 0;
    size_t end = at_ + 2;
    if (end < pattern_.size() && pattern_[end] == '^') ++end;
    while (end < pattern_.size() && is_ascii_letter(pattern_[end])) ++end;
    return pattern_.substr(end).starts_with(":]") ? end + 2 - at_ : 0;
  }

  // Returns items of a class, extended by newer characters if they are wanted.
  std::string items(std::string_view text) const {
    return newer_ ? with_newer(text) : std::string(text);
  }

  Class posix_class(std::string_view text) const {
    std::string_view name = text.substr(2, text.size() - 4);
    Class result;
    result.negated = name.starts_with('^');
    if (result.negated) name.remove_prefix(1);
    const auto found =
        std::ranges::find(kPosix, name, &std::pair<std::string_view, std::string_view>::first);
    result.operands[0].items =
        found != kPosix.end() ? items(found->second) : "[:" + std::string(name) + ":]";
    return result;
  }

  // Reads a class. REQUIRES: at "[".
  Result<Class> read_class(int depth) {
    const size_t begin = at_++;
    Class result;
    if (next_is("^")) result.negated = true, ++at_;
    if (next_is("]")) result.operands[0].items = "\\]", ++at_;
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      Class::Union& operand = result.operands.back();
      if (next_is("&&")) {
        at_ += 2;
        result.operands.emplace_back();
      } else if (const size_t size = posix_name_size(); size > 0) {
        add(posix_class(pattern_.substr(at_, size)), operand);
        at_ += size;
      } else if (pattern_[at_] == '[') {
        if (depth + 1 >= kMaxClassDepth)
          return errorf(ErrorCode::kCorruptFile, "tokenizer pattern: classes nested deeper than {}",
                        kMaxClassDepth);
        ASSIGN_OR_RETURN(Class inner, read_class(depth + 1));
        add(std::move(inner), operand);
      } else if (pattern_[at_] == '\\') {
        escape(&operand, operand.items);
      } else {
        if (pattern_[at_] == '^') operand.items += '\\';
        operand.items += pattern_[at_++];
      }
    }
    if (at_ == pattern_.size()) {
      return errorf(ErrorCode::kCorruptFile,
                    "tokenizer pattern \"{:.80}\": the class at byte {} has no end", pattern_,
                    begin);
    }
    ++at_;
    return result;
  }

  static bool is_plain(const Class& c) {
    return c.operands.size() == 1 && c.operands[0].classes.empty();
  }

  static void add(Class inner, Class::Union& to) {
    if (inner.operands.size() == 1 && !inner.negated) {
      to.items += inner.operands[0].items;
      std::ranges::move(inner.operands[0].classes, std::back_inserter(to.classes));
    } else {
      to.classes.push_back(std::move(inner));
    }
  }

  // Returns a PCRE2 pattern of one character of the union.
  static std::string written(const Class::Union& one) {
    std::vector<std::string> parts;
    if (!one.items.empty()) parts.push_back("[" + one.items + "]");
    for (const Class& inner : one.classes) parts.push_back(written(inner));
    if (parts.empty()) return "(?!)";
    if (parts.size() == 1) return parts[0];
    std::string out = "(?:" + parts[0];
    for (size_t i = 1; i < parts.size(); ++i) out += "|" + parts[i];
    return out + ")";
  }

  static std::string written(const Class& c) {
    if (is_plain(c)) return (c.negated ? "[^" : "[") + c.operands[0].items + "]";
    std::string out;
    for (size_t i = 0; i + 1 < c.operands.size(); ++i) out += "(?=" + written(c.operands[i]) + ")";
    out += written(c.operands.back());
    return c.negated ? "(?:(?!" + out + ")(?s:.))" : "(?:" + out + ")";
  }

  // Translates an escape. REQUIRES: at "\\". in_class: the class that contains it, to whose items
  // `out` belongs, or null.
  void escape(Class::Union* in_class, std::string& out) {
    const char kind = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    const size_t begin = at_;
    at_ += kind == '\0' ? 1 : 2;
    const auto ranges = [&](std::string_view text, bool negated) {
      put(class_of(items(text), negated), in_class, out);
    };
    switch (kind) {
      case 's': return ranges(kSpaceRanges, false);
      case 'S':
        return in_class != nullptr ? ranges(kNotSpaceRanges, false) : ranges(kSpaceRanges, true);
      case 'w':
      case 'W': return ranges(in_class != nullptr ? kWordInClass : kWord, kind == 'W');
      case 'd':
      case 'D': return property("Nd", kind == 'D', in_class, out);
      case 'h': return ranges("0-9a-fA-F", false);
      case 'b':
      case 'B':
        if (in_class == nullptr) return word_boundary(kind == 'b', out);
        break;
      case 'u':
        if (code_point(out)) return;
        break;
      case 'p':
      case 'P':
        if (next_is("{")) return named_property(kind == 'P', in_class, out);
        break;
      default: break;
    }
    out.append(pattern_, begin, at_ - begin);
  }

  static Class class_of(std::string items, bool negated) {
    Class result;
    result.negated = negated;
    result.operands[0].items = std::move(items);
    return result;
  }

  static void put(Class one, Class::Union* in_class, std::string& out) {
    if (in_class != nullptr) return add(std::move(one), *in_class);
    out += written(one);
  }

  // Translates \uHHHH; \u{H} keeps its braces. REQUIRES: after the u.
  bool code_point(std::string& out) {
    const bool braces = next_is("{");
    size_t n = 0;
    while (!braces && n < 4 && at_ + n < pattern_.size() && is_ascii_hex_digit(pattern_[at_ + n])) {
      ++n;
    }
    if (!braces && n < 4) return false;
    out += "\\x";
    if (!braces) out += "{" + std::string(pattern_.substr(at_, n)) + "}";
    at_ += n;
    return true;
  }

  void word_boundary(bool wanted, std::string& out) const {
    const std::string word = "[" + items(kWord) + "]";
    const std::string before = "(?<=" + word + ")", not_before = "(?<!" + word + ")";
    const std::string after = "(?=" + word + ")", not_after = "(?!" + word + ")";
    out += "(?:" + before + (wanted ? not_after : after) + "|" + not_before +
           (wanted ? after : not_after) + ")";
  }

  // Translates a property. REQUIRES: at "{".
  void named_property(bool negated, Class::Union* in_class, std::string& out) {
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) {  // PCRE2 reports the error
      out += "\\p" + std::string(pattern_.substr(at_));
      at_ = pattern_.size();
      return;
    }
    std::string_view name = pattern_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    property(property_name(name), negated, in_class, out);
  }

  // name: PCRE2's name; a script may be newer than PCRE2's tables.
  void property(const std::string& name, bool negated, Class::Union* in_class,
                std::string& out) const {
    const std::string plain = plain_name(name);
    if (plain == "alphabetic" || plain == "alpha")
      return put(class_of(items(kAlphabetic), negated), in_class, out);
    if (plain == "lowercase" || plain == "lower")
      return put(class_of(items(kLowercase), negated), in_class, out);
    const std::string known = std::string(negated ? "\\P{" : "\\p{") + name + "}";
    if (std::string newer = newer_of(name, false).more; !newer.empty() && !compiles(known))
      return put(class_of(std::move(newer), negated), in_class, out);
    const Newer newer = newer_ ? newer_of(name, negated) : Newer{};
    if (newer.more.empty() && newer.less.empty()) {
      out += known;
      return;
    }
    Class result = class_of(newer.less.empty() ? known + newer.more : newer.more, false);
    if (!newer.less.empty()) {
      Class reduced = class_of(known, false);
      reduced.operands.emplace_back().classes.push_back(class_of(newer.less, true));
      result.operands[0].classes.push_back(std::move(reduced));
    }
    put(std::move(result), in_class, out);
  }

  std::string_view pattern_;
  bool newer_;  // include newer characters
  size_t at_ = 0;
  size_t atom_ = 0;             // output position of the atom to which a quantifier applies
  std::vector<size_t> groups_;  // output positions of open groups
};

}  // namespace

Result<std::string> to_pcre(std::string_view pattern, Characters characters) {
  return Translator(pattern, characters).run();
}

}  // namespace penstock
