#include <fmt/format.h>

#include <optional>
#include <string>

#include "grammar/regex/expr.h"
#include "grammar/regex/syntax_tree.h"
#include "text/unicode/unicode.h"

namespace penstock::grammar {
namespace {

using RegexKind = RegexNode::Kind;
constexpr uint32_t kMaxCount = 1U << 30;

struct Flags {
  bool ignore_case = false, dot_all = false;
};

// Recursive descent. Only groups recurse, and their depth is bounded.
class TreeParser {
 public:
  TreeParser(std::u32string text, int max_depth, const RegexDialect& dialect)
      : text_(std::move(text)),
        max_depth_(max_depth),
        terminal_(dialect.terminal),
        flags_{dialect.ignore_case, dialect.dot_all} {}

  Compiled<RegexTree> run() {
    const uint32_t root = alternatives(0);
    if (!failed_ && !at_end()) fail(RefusalKind::kInvalid, "\")\" without \"(\"");
    if (failed_) return tl::unexpected(std::move(refusal_));
    tree_.root = root;
    return std::move(tree_);
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  char32_t peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0xFFFFFFFF;
  }
  bool take(char32_t c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool take(std::u32string_view expected) {
    if (std::u32string_view(text_).substr(std::min(at_, text_.size())).substr(0, expected.size()) !=
        expected)
      return false;
    at_ += expected.size();
    return true;
  }
  uint32_t fail(RefusalKind kind, std::string what) {
    if (!failed_) {
      refusal_ = {kind, "", "", fmt::format("regular expression, character {}: {}", at_ + 1, what)};
    }
    failed_ = true;
    at_ = text_.size();
    return 0;
  }

  uint32_t add(RegexNode node) {
    for (const uint32_t part : node.parts) node.has_assertions |= tree_.nodes[part].has_assertions;
    tree_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }
  uint32_t add_chars(CharSet set) {
    if (flags_.ignore_case) set = ignore_case(set);
    return add({.kind = RegexKind::kChars, .chars = std::move(set)});
  }
  uint32_t add_anchor(RegexKind kind) {
    if (terminal_)
      return unsupported(
          "an anchor in a terminal, which is matched as a whole wherever it stands: leave it out");
    return add({.kind = kind, .has_assertions = true});
  }
  uint32_t unsupported(std::string what) {
    return fail(RefusalKind::kUnsupported, std::move(what));
  }

  uint32_t alternatives(int depth) {
    const Flags outer = flags_;
    std::vector<uint32_t> parts{sequence(depth)};
    while (take(U'|')) parts.push_back(sequence(depth));
    flags_ = outer;
    if (parts.size() == 1) return parts.front();
    return add({.kind = RegexKind::kAlternatives, .parts = std::move(parts)});
  }

  uint32_t sequence(int depth) {
    std::vector<uint32_t> parts;
    while (!at_end() && peek() != U'|' && peek() != U')') {
      const std::optional<uint32_t> atom = this->atom(depth);
      if (failed_) return 0;
      if (atom) parts.push_back(quantified(*atom));
    }
    if (parts.size() == 1) return parts.front();
    return add({.kind = RegexKind::kConcat, .parts = std::move(parts)});
  }

  // nullopt: flags, which match nothing.
  std::optional<uint32_t> atom(int depth) {
    switch (const char32_t c = text_[at_++]) {
      case U'(': return group(depth);
      case U'[': return char_class();
      case U'.': return add_chars(flags_.dot_all ? CharSet::all() : line_end().complement());
      case U'^': return add_anchor(RegexKind::kTextStart);
      case U'$': return add_anchor(RegexKind::kTextEnd);
      case U'\\': return escape();
      case U'*':
      case U'+':
      case U'?': return fail(RefusalKind::kInvalid, "nothing to repeat");
      case U'{':
        if (--at_; counts()) return fail(RefusalKind::kInvalid, "nothing to repeat");
        ++at_;
        return add_chars(CharSet::of(c));
      default: return add_chars(CharSet::of(c));
    }
  }

  std::optional<uint32_t> group(int depth) {
    if (depth >= max_depth_)
      return fail(RefusalKind::kTooLarge, fmt::format("groups nest deeper than {}", max_depth_));
    bool look_ahead = false, negative = false;
    const Flags outer = flags_;
    if (take(U"?")) {
      if (take(U"=") || take(U"!")) {
        if (terminal_) return unsupported("look-ahead is not supported in terminals");
        look_ahead = true;
        negative = text_[at_ - 1] == U'!';
      } else if (take(U"<=") || take(U"<!")) {
        return fail(RefusalKind::kUnsupported, "look-behind is not supported");
      } else if (take(U"P<") || take(U"<")) {
        while (!at_end() && peek() != U'>') ++at_;
        if (!take(U'>')) return fail(RefusalKind::kInvalid, "a group's name without \">\"");
      } else if (!take(U":")) {
        if (!flag_letters())
          return fail(RefusalKind::kUnsupported, "this kind of group is not supported");
        if (take(U')')) return std::nullopt;
        if (!take(U':')) return fail(RefusalKind::kInvalid, "expected \":\" or \")\" behind flags");
      }
    }
    const uint32_t inner = alternatives(depth + 1);
    flags_ = outer;
    if (!take(U')')) return fail(RefusalKind::kInvalid, "\"(\" without \")\"");
    if (!look_ahead) return inner;
    return add({.kind = RegexKind::kLookAhead,
                .negative = negative,
                .has_assertions = true,
                .parts = {inner}});
  }

  bool flag_letters() {
    bool any = false;
    for (;; any = true) {
      if (take(U'i')) {
        flags_.ignore_case = true;
      } else if (take(U's')) {
        flags_.dot_all = true;
      } else if (!take(U'u')) {
        return any;
      }
    }
  }

  struct Counts {
    uint32_t min, max;
  };
  // Reads "{2}", "{2,}" or "{2,5}"; does not advance otherwise.
  std::optional<Counts> counts() {
    const size_t begin = at_;
    const auto number = [&]() -> std::optional<uint32_t> {
      if (peek() < U'0' || peek() > U'9') return std::nullopt;
      uint64_t n = 0;
      while (peek() >= U'0' && peek() <= U'9')
        n = std::min<uint64_t>(kMaxCount, n * 10 + (text_[at_++] - U'0'));
      return static_cast<uint32_t>(n);
    };
    if (take(U'{')) {
      if (const auto min = number()) {
        Counts result{*min, *min};
        if (take(U',')) result.max = number().value_or(ExprPool::kUnbounded);
        if (take(U'}')) return result;
      }
    }
    at_ = begin;
    return std::nullopt;
  }

  uint32_t quantified(uint32_t atom) {
    std::optional<Counts> found;
    if (take(U'*')) {
      found = {0, ExprPool::kUnbounded};
    } else if (take(U'+')) {
      found = {1, ExprPool::kUnbounded};
    } else if (take(U'?')) {
      found = {0, 1};
    } else {
      found = counts();
      if (!found && peek() == U'{' && peek(1) == U',' && peek(2) >= U'0' && peek(2) <= U'9') {
        return fail(RefusalKind::kUnsupported, "write {0,n} instead of {,n}");
      }
    }
    if (!found) return atom;
    if (found->min > found->max)
      return fail(RefusalKind::kInvalid, "the repetition's least is more than its most");
    // otherwise laziness has no effect: the set of matches is the same
    if (take(U'?') && terminal_)
      return unsupported(
          "lazy repetitions are not supported: say what they stop at, as [^\"]* does");
    if (peek() == U'*' || peek() == U'+' || peek() == U'?' || counts()) {
      return fail(RefusalKind::kInvalid,
                  "a repetition of a repetition: put the inner one into a group");
    }
    return add({.kind = RegexKind::kRepeat, .min = found->min, .max = found->max, .parts = {atom}});
  }

  std::optional<uint32_t> escape() {
    if (at_end()) return fail(RefusalKind::kInvalid, "\"\\\" at the end");
    const char32_t c = peek();
    if (c == U'A' || c == U'z' || c == U'Z') {
      ++at_;
      return add_anchor(c == U'A' ? RegexKind::kTextStart : RegexKind::kTextEnd);
    }
    if (c == U'b' || c == U'B')
      return fail(RefusalKind::kUnsupported, "word boundaries are not supported");
    if ((c >= U'1' && c <= U'9') || c == U'k')
      return fail(RefusalKind::kUnsupported, "back-references are not supported");
    const std::optional<CharSet> set = escaped_set();
    return set ? add_chars(*set) : 0;
  }

  // Reads an escape after its backslash, inside or outside a class; nullopt: refused.
  std::optional<CharSet> escaped_set() {
    switch (const char32_t c = text_[at_++]) {
      case U'd': return digit();
      case U'D': return digit().complement();
      case U'w': return word();
      case U'W': return word().complement();
      case U's': return space();
      case U'S': return space().complement();
      case U'p':
      case U'P': return property(c == U'P');
      default: break;
    }
    --at_;
    const std::optional<char32_t> c = escaped_char();
    return c ? std::optional(CharSet::of(*c)) : std::nullopt;
  }

  const CharSet& digit() const { return terminal_ ? classes::unicode_digit() : classes::digit(); }
  const CharSet& word() const { return terminal_ ? classes::unicode_word() : classes::word(); }
  const CharSet& space() const { return terminal_ ? classes::unicode_space() : classes::space(); }
  CharSet line_end() const { return terminal_ ? CharSet::of(U'\n') : classes::line_end(); }

  std::optional<CharSet> property(bool negated) {
    std::string name;
    if (take(U'{')) {
      while (!at_end() && peek() != U'}' && peek() < 128) name += static_cast<char>(text_[at_++]);
      if (!take(U'}')) name.clear();
    } else if (!at_end()) {
      name += peek() < 128 ? static_cast<char>(peek()) : '?';
      ++at_;
    }
    const std::optional<CharSet> set = CharSet::property(name);
    if (!set) {
      fail(RefusalKind::kInvalid, fmt::format("unknown property \\p{{{}}}", name));
      return std::nullopt;
    }
    return negated ? set->complement() : *set;
  }

  static std::optional<char32_t> control_escape(char32_t c) {
    switch (c) {
      case U'a': return 7;
      case U'e': return 27;
      case U'f': return 12;
      case U'n': return 10;
      case U'r': return 13;
      case U't': return 9;
      case U'v': return 11;
      case U'0': return 0;
      default: return std::nullopt;
    }
  }

  std::optional<char32_t> escaped_char() {
    const char32_t c = text_[at_++];
    if (c == U'0' && terminal_ && peek() >= U'0' && peek() <= U'9') {
      unsupported("octal escapes are not supported: write \\x..");
      return std::nullopt;
    }
    if (const auto control = control_escape(c)) return control;
    if (c == U'x') return hex(2);
    if (c == U'u') return unicode_escape();
    if (c == U'c' && ((peek() | 32) >= U'a' && (peek() | 32) <= U'z')) return text_[at_++] % 32;
    const bool letter =
        (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z') || (c >= U'0' && c <= U'9');
    if (!letter) return c;
    --at_;
    fail(RefusalKind::kUnsupported,
         fmt::format("the escape \\{} is not supported", static_cast<char>(c)));
    return std::nullopt;
  }

  std::optional<char32_t> hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char32_t c = peek(), lower = c | 32;
      const bool decimal = c >= U'0' && c <= U'9';
      if (!decimal && (lower < U'a' || lower > U'f')) {
        fail(RefusalKind::kInvalid, fmt::format("expected {} hexadecimal digits", digits));
        return std::nullopt;
      }
      value = value * 16 + (decimal ? c - U'0' : lower - U'a' + 10);
      ++at_;
    }
    return value;
  }

  std::optional<char32_t> unicode_escape() {
    if (take(U'{')) {
      char32_t value = 0;
      int n = 0;
      for (; !at_end() && peek() != U'}' && n < 7; ++n) {
        const auto digit = hex(1);
        if (!digit) return std::nullopt;
        value = value * 16 + *digit;
      }
      if (take(U'}') && n > 0 && value <= kLastCodePoint) return value;
      fail(RefusalKind::kInvalid, "expected \\u{1} to \\u{10FFFF}");
      return std::nullopt;
    }
    const auto high = hex(4);
    if (!high || *high < 0xD800 || *high > 0xDBFF || peek() != U'\\' || peek(1) != U'u')
      return high;
    const size_t begin = at_;
    at_ += 2;
    const auto low = hex(4);
    if (low && *low >= 0xDC00 && *low <= 0xDFFF)
      return 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00);
    at_ = begin;
    return high;
  }

  uint32_t char_class() {
    const bool negated = take(U'^');
    if (!negated && peek() == U']')
      return fail(RefusalKind::kUnsupported,
                  "an empty class, or \"]\" first in a class: write \\]");
    std::vector<CodeRange> ranges;
    const auto add_all = [&](const CharSet& set) {
      ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
    };
    while (!at_end() && peek() != U']') {
      if (peek() == U'[' && (peek(1) == U':' || peek(1) == U'.' || peek(1) == U'=')) {
        return fail(RefusalKind::kUnsupported,
                    "POSIX classes are not supported: write \\[ for the character");
      }
      if (terminal_ && at_set_operator())
        return unsupported(
            "\"[\", \"&&\", \"--\" and \"~~\" in a class: write \\[, \\&, \\- or \\~ for the "
            "character");
      const std::optional<CharSet> low = class_atom();
      if (!low) return 0;
      if (peek() != U'-' || peek(1) == U']' || peek(1) == 0xFFFFFFFF) {
        add_all(*low);
        continue;
      }
      ++at_;
      const std::optional<CharSet> high = class_atom();
      if (!high) return 0;
      if (!add_range(*low, *high, ranges)) return 0;
    }
    if (!take(U']')) return fail(RefusalKind::kInvalid, "\"[\" without \"]\"");
    CharSet set = CharSet::from_ranges(std::move(ranges));
    if (flags_.ignore_case) set = ignore_case(set);
    return add({.kind = RegexKind::kChars, .chars = negated ? set.complement() : set});
  }

  bool at_set_operator() const {
    const char32_t c = peek();
    return c == U'[' || (peek(1) == c && (c == U'&' || c == U'-' || c == U'~'));
  }

  bool add_range(const CharSet& low, const CharSet& high, std::vector<CodeRange>& ranges) {
    const auto is_char = [](const CharSet& s) {
      return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].last;
    };
    if (!is_char(low) || !is_char(high)) {  // "[\w-.]": the dash is literal
      for (const CharSet& set : {low, high, CharSet::of(U'-')}) {
        ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
      }
      return true;
    }
    const CodeRange range{low.ranges()[0].first, high.ranges()[0].first};
    if (range.first > range.last)
      return fail(RefusalKind::kInvalid, "a range whose end is before its begin") != 0;
    ranges.push_back(range);
    return true;
  }

  std::optional<CharSet> class_atom() {
    if (peek() != U'\\') return CharSet::of(text_[at_++]);
    ++at_;
    if (at_end()) {
      fail(RefusalKind::kInvalid, "\"\\\" at the end");
      return std::nullopt;
    }
    if (take(U'b')) return CharSet::of(8);
    return escaped_set();
  }

  std::u32string text_;
  int max_depth_;
  bool terminal_;
  size_t at_ = 0;
  Flags flags_;
  RegexTree tree_;
  bool failed_ = false;
  Refusal refusal_;
};

}  // namespace

Compiled<RegexTree> parse_regex_tree(std::string_view pattern, int max_depth,
                                     const RegexDialect& dialect) {
  std::u32string text;
  for (size_t i = 0; i < pattern.size();) {
    const unicode::Decoded c = unicode::decode(pattern, i);
    if (!c.valid)
      return refuse(RefusalKind::kInvalid, "",
                    fmt::format("regular expression, byte {}: not UTF-8", i));
    text += c.code;
    i += c.length;
  }
  return TreeParser(std::move(text), max_depth, dialect).run();
}

}  // namespace penstock::grammar
