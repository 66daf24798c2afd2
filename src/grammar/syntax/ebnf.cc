#include "grammar/syntax/ebnf.h"

#include "grammar/syntax/rule_scanner.h"

namespace penstock::grammar {
namespace {

class EbnfParser {
 public:
  EbnfParser(std::string_view text, Rules& rules, const Vocabulary* vocabulary, int max_depth)
      : scan_(text, rules, vocabulary, max_depth), in_(scan_.in()), rules_(rules) {}

  Compiled<uint32_t> run() {
    rules_.begin_scope();
    space();
    while (!in_.at_end() && !scan_.failed()) rule();
    const uint32_t root = rules_.find("root");
    if (!scan_.failed() && (root == kNone || !rules_.rules()[root].body))
      scan_.invalid("there is no rule \"root\", with which texts begin");
    if (scan_.failed()) return tl::unexpected(std::move(scan_.refusal()));
    return root;
  }

 private:
  void space() {
    while (!in_.at_end()) {
      const char c = in_.peek();
      if (c == '#') {
        while (!in_.at_end() && in_.peek() != '\n') in_.skip(1);
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        in_.skip(1);
      } else {
        return;
      }
    }
  }

  std::string_view name() {
    size_t n = 0;
    while (is_name_char(in_.peek(n))) ++n;
    const std::string_view found = in_.rest().substr(0, n);
    in_.skip(n);
    return found;
  }

  // Whether the next rule begins here.
  bool at_rule() {
    const size_t begin = in_.position();
    const bool named = !name().empty();
    while (in_.peek() == ' ' || in_.peek() == '\t') in_.skip(1);
    const bool found = named && in_.rest().starts_with("::=");
    in_.back_to(begin);
    return found;
  }

  void rule() {
    const std::string where = in_.where();
    if (!at_rule()) {
      scan_.invalid("expected a rule: name ::= ... (or name: ..., which is Lark)");
      return;
    }
    const uint32_t index = rules_.named(name(), where);
    space();
    in_.take("::=");
    const uint32_t body = alternatives(0);
    if (scan_.failed()) return;
    if (!in_.at_end() && !at_rule()) {
      scan_.invalid(fmt::format("unexpected \"{}\"", in_.peek()));
      return;
    }
    if (rules_.rules()[index].body) {
      scan_.invalid(fmt::format("the rule \"{}\" is defined twice", rules_.rules()[index].name));
      return;
    }
    rules_.rules()[index].body = body;
  }

  uint32_t alternatives(int depth) {
    std::vector<uint32_t> parts;
    do {
      parts.push_back(sequence(depth));
    } while (!scan_.failed() && in_.take("|"));
    return rules_.choice(std::move(parts));
  }

  uint32_t sequence(int depth) {
    std::vector<uint32_t> parts;
    space();
    while (!scan_.failed() && !in_.at_end() && in_.peek() != '|' && in_.peek() != ')' &&
           !at_rule()) {
      uint32_t part = element(depth);
      space();
      while (!scan_.failed() && is_suffix()) {
        part = suffix(part);
        space();
      }
      parts.push_back(part);
    }
    return rules_.sequence(std::move(parts));
  }

  uint32_t element(int depth) {
    const char c = in_.peek();
    if (c == '"' || c == '\'') return literal(c);
    if (c == '[') return char_class();
    if (c == '(') return group(depth);
    if (c == '<') return scan_.token();
    if (in_.take(".")) return rules_.text(ExprPool::kAnyChar);
    const std::string where = in_.where();
    const std::string_view called = name();
    if (!called.empty()) return rules_.rule(rules_.named(called, where));
    return scan_.fail(c == '!' ? RefusalKind::kUnsupported : RefusalKind::kInvalid,
                      fmt::format("unexpected \"{}\"", c));
  }

  uint32_t group(int depth) {
    if (depth >= scan_.max_depth())
      return scan_.fail(RefusalKind::kTooLarge,
                        fmt::format("groups nest deeper than {}", scan_.max_depth()));
    in_.skip(1);
    if (in_.peek() == '=' || in_.peek() == '!')
      return scan_.unsupported("look-ahead is not supported");
    const uint32_t inner = alternatives(depth + 1);
    if (!scan_.failed() && !in_.take(")")) return scan_.invalid("expected \")\"");
    return inner;
  }

  uint32_t literal(char quote) {
    in_.skip(1);
    std::u32string text;
    while (!scan_.failed() && in_.peek() != quote) {
      if (in_.at_end()) return scan_.invalid("a literal without its closing quotation mark");
      text += character();
    }
    in_.skip(1);
    return rules_.text(rules_.pool().literal(text));
  }

  char32_t character() {
    if (!in_.take("\\")) return in_.next();
    const char c = in_.peek();
    in_.skip(in_.at_end() ? 0 : 1);
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'f': return '\f';
      case 'v': return '\v';
      case 'a': return '\a';
      case 'b': return '\b';
      case 'e': return 27;
      case '0': return 0;
      case 'x': return scan_.hex(2);
      case 'u': return in_.peek() == '{' ? scan_.braced_hex() : scan_.hex(4);
      case 'U': return scan_.hex(8);
      default: break;
    }
    if (is_name_char(c) && c != '-' && c != '_') {
      scan_.invalid(fmt::format("unknown escape \\{}", c));
      return 0;
    }
    if (static_cast<unsigned char>(c) >= 0x80) {
      in_.back_to(in_.position() - 1);
      return in_.next();
    }
    return static_cast<unsigned char>(c);
  }

  uint32_t char_class() {
    in_.skip(1);
    const bool negated = in_.take("^");
    std::vector<CodeRange> ranges;
    while (!scan_.failed() && in_.peek() != ']') {
      if (in_.at_end()) return scan_.invalid("\"[\" without \"]\"");
      const char32_t first = character();
      char32_t last = first;
      if (in_.peek() == '-' && in_.peek(1) != ']') {
        in_.skip(1);
        last = character();
        if (!scan_.failed() && last < first)
          return scan_.invalid("a range whose end is before its begin");
      }
      ranges.push_back({first, last});
    }
    in_.skip(1);
    const CharSet set = CharSet::from_ranges(std::move(ranges));
    return rules_.text(rules_.pool().chars(negated ? set.complement() : set));
  }

  bool is_suffix() const {
    const char c = in_.peek();
    return c == '*' || c == '+' || c == '?' || c == '{';
  }

  uint32_t suffix(uint32_t part) {
    if (in_.take("*")) return rules_.repeat(part, 0, kNone);
    if (in_.take("+")) return rules_.repeat(part, 1, kNone);
    if (in_.take("?")) return rules_.repeat(part, 0, 1);
    return scan_.counted(part);
  }

  RuleScanner scan_;
  TextCursor& in_;
  Rules& rules_;
};

}  // namespace

Compiled<uint32_t> parse_ebnf(std::string_view text, Rules& rules, const Vocabulary* vocabulary,
                              int max_depth) {
  return EbnfParser(text, rules, vocabulary, max_depth).run();
}

}  // namespace penstock::grammar
