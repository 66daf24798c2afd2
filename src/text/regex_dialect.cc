#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex_dialect.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace penstock {
namespace {

// White_Space without U+180E, which PCRE2's \s has and the others' has not.
constexpr std::string_view kSpaceRanges =
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{"
    "3000}";
constexpr std::string_view kNotSpaceRanges =
    "\\x{00}-\\x{08}\\x{0e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{"
    "200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
// With the few that newer versions of Unicode than PCRE2's count in.
constexpr std::string_view kAlphabetic =
    "\\p{Alphabetic}\\x{363}-\\x{36f}\\x{c04}\\x{f82}\\x{f83}\\x{1dd3}-\\x{1de6}\\x{11080}\\x{11081}";
constexpr std::string_view kAlphanumeric =
    "\\p{Alphabetic}\\x{363}-\\x{36f}\\x{c04}\\x{f82}\\x{f83}\\x{1dd3}-\\x{1de6}\\x{11080}\\x{11081}\\p{Nd}";
// POSIX' names; those that are missing mean the same on both sides.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kPosix = {{
    {"alnum", kAlphanumeric},
    {"alpha", kAlphabetic},
    {"blank", "\\x{09}\\p{Zs}"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"graph", "[:graph:]\\p{Cf}\\p{Co}"},
    {"lower", "\\p{Lowercase}\\x{10fc}\\x{a7f2}-\\x{a7f4}\\x{ab69}"},
    {"print", "[:print:]\\p{Cf}\\p{Co}"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", kSpaceRanges},
    {"upper", "\\p{Uppercase}"},
    {"word", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"},
    {"xdigit", "0-9a-fA-F"},
}};
constexpr int kMaxClassDepth = 16;  // of classes in classes

// Long names of general categories, without their underscores and in small letters.
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

// What PCRE2 calls the property. A script's plain name means its extensions there, the script alone elsewhere.
std::string property_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '_' && c != ' ' && c != '-')
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const auto found = std::ranges::find(kCategories, plain, &Category::name);
  if (found != kCategories.end()) return std::string(found->code);
  if (plain.size() <= 2 || plain.find_first_of("=:^&") != std::string::npos) return std::string(name);
  std::string script = "sc:" + std::string(name);
  return compiles("\\p{" + script + "}") ? script : std::string(name);
}

// Reads a pattern once, from left to right.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

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
        escape(false, out);
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
  // The characters that are in all of its operands, or with `negated` all others.
  struct Class {
    struct Union {
      std::string items;  // as they stand in a class of PCRE2
      std::vector<Class> classes;
    };
    bool negated = false;
    std::vector<Union> operands = std::vector<Union>(1);
  };

  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  // {n}, {n,}, {,m} or {n,m}, when it comes next: a + behind it repeats the whole once more, as does a ? behind {n}.
  bool interval(std::string& out) {
    size_t end = at_ + 1;
    std::string numbers[2];
    int n = 0;
    for (; end < pattern_.size() && pattern_[end] != '}'; ++end) {
      if (pattern_[end] == ',' && n == 0) {
        ++n;
      } else if (std::isdigit(static_cast<unsigned char>(pattern_[end])) != 0) {
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

  // Of "[:alpha:]" and its like, when it comes next; else 0.
  size_t posix_name_size() const {
    if (!next_is("[:")) return 0;
    size_t end = at_ + 2;
    if (end < pattern_.size() && pattern_[end] == '^') ++end;
    while (end < pattern_.size() && std::isalpha(static_cast<unsigned char>(pattern_[end])) != 0) ++end;
    return pattern_.substr(end).starts_with(":]") ? end + 2 - at_ : 0;
  }

  static Class posix_class(std::string_view text) {
    std::string_view name = text.substr(2, text.size() - 4);
    Class result;
    result.negated = name.starts_with('^');
    if (result.negated) name.remove_prefix(1);
    const auto found = std::ranges::find(kPosix, name, &std::pair<std::string_view, std::string_view>::first);
    result.operands[0].items =
        found != kPosix.end() ? std::string(found->second) : "[:" + std::string(name) + ":]";
    return result;
  }

  // REQUIRES: at "[".
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
        escape(true, operand.items);
      } else {
        if (pattern_[at_] == '^') operand.items += '\\';
        operand.items += pattern_[at_++];
      }
    }
    if (at_ == pattern_.size()) {
      return errorf(ErrorCode::kCorruptFile, "tokenizer pattern \"{:.80}\": the class at byte {} has no end",
                    pattern_, begin);
    }
    ++at_;
    return result;
  }

  static bool is_plain(const Class& c) { return c.operands.size() == 1 && c.operands[0].classes.empty(); }

  static void add(Class inner, Class::Union& to) {
    if (is_plain(inner) && !inner.negated) {
      to.items += inner.operands[0].items;
    } else {
      to.classes.push_back(std::move(inner));
    }
  }

  // One character of it.
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

  // REQUIRES: at "\\".
  void escape(bool in_class, std::string& out) {
    const char kind = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    const size_t begin = at_;
    at_ += kind == '\0' ? 1 : 2;
    const auto ranges = [&](std::string_view text, bool negated) {
      out += in_class ? std::string(text) : (negated ? "[^" : "[") + std::string(text) + "]";
    };
    switch (kind) {
      case 's': return ranges(kSpaceRanges, false);
      case 'S': return in_class ? ranges(kNotSpaceRanges, false) : ranges(kSpaceRanges, true);
      case 'w': return ranges(kWord, false);
      case 'W':
        if (!in_class) return ranges(kWord, true);
        break;
      case 'd': out += "\\p{Nd}"; return;
      case 'D': out += "\\P{Nd}"; return;
      case 'h': return ranges("0-9a-fA-F", false);
      case 'b':
      case 'B':
        if (!in_class) return word_boundary(kind == 'b', out);
        break;
      case 'u':
        if (code_point(out)) return;
        break;
      case 'p':
      case 'P':
        if (next_is("{")) return property(kind, out);
        break;
      default: break;
    }
    out.append(pattern_, begin, at_ - begin);
  }

  // \uHHHH; \u{H} is left with its braces. REQUIRES: behind the u.
  bool code_point(std::string& out) {
    const bool braces = next_is("{");
    size_t n = 0;
    while (!braces && n < 4 && at_ + n < pattern_.size() &&
           std::isxdigit(static_cast<unsigned char>(pattern_[at_ + n])) != 0) {
      ++n;
    }
    if (!braces && n < 4) return false;
    out += "\\x";
    if (!braces) out += "{" + std::string(pattern_.substr(at_, n)) + "}";
    at_ += n;
    return true;
  }

  static void word_boundary(bool wanted, std::string& out) {
    const std::string word = "[" + std::string(kWord) + "]";
    const std::string before = "(?<=" + word + ")", not_before = "(?<!" + word + ")";
    const std::string after = "(?=" + word + ")", not_after = "(?!" + word + ")";
    out +=
        "(?:" + before + (wanted ? not_after : after) + "|" + not_before + (wanted ? after : not_after) + ")";
  }

  // REQUIRES: at "{".
  void property(char kind, std::string& out) {
    const size_t end = pattern_.find('}', at_);
    std::string_view name = pattern_.substr(at_ + 1, end == std::string_view::npos ? end : end - at_ - 1);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    out += '\\';
    out += kind;
    out += (negated ? "{^" : "{") + property_name(name);
    if (end == std::string_view::npos) {
      at_ = pattern_.size();
      return;
    }
    out += '}';
    at_ = end + 1;
  }

  std::string_view pattern_;
  size_t at_ = 0;
  size_t atom_ = 0;             // where that to which a quantifier belongs begins in the output
  std::vector<size_t> groups_;  // where those that are open begin
};

}  // namespace

Result<std::string> to_pcre(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace penstock
