#include "grammar/syntax/lark_scanner.h"

#include <algorithm>

#include "grammar/regex/parser.h"

namespace penstock::grammar {
namespace {

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

}  // namespace

void LarkScanner::comment() {
  while (!in_.at_end() && in_.peek() != '\n') in_.skip(1);
}

// Skips white space and comments up to the end of the line, which a backslash continues.
void LarkScanner::space() {
  for (;;) {
    const char c = in_.peek();
    if (c == ' ' || c == '\t' || c == '\f' || c == '\r') {
      in_.skip(1);
    } else if (c == '#' || (c == '/' && in_.peek(1) == '/')) {
      comment();
    } else if (c != '\\' || !line_goes_on()) {
      return;
    }
  }
}

bool LarkScanner::line_goes_on() {
  const size_t end = in_.rest().find_first_not_of(" \t\r", 1);
  if (end == std::string_view::npos || in_.rest()[end] != '\n') return false;
  in_.skip(end + 1);
  return true;
}

void LarkScanner::lines() {
  for (space(); in_.peek() == '\n'; space()) in_.skip(1);
}

// Reads "|"; only before it may a definition continue on another line.
bool LarkScanner::bar() {
  const size_t begin = in_.position();
  lines();
  if (in_.take("|")) return true;
  in_.back_to(begin);
  space();
  return false;
}

std::string LarkScanner::name() {
  size_t n = 0;
  while (is_name_char(in_.peek(n)) && in_.rest().substr(n, 2) != "->") ++n;
  const std::string found(in_.rest().substr(0, n));
  in_.skip(n);
  return found;
}

bool LarkScanner::is_terminal(std::string_view name) {
  return std::any_of(name.begin(), name.end(), is_upper);
}
// Whether the name is valid for a rule or terminal.
bool LarkScanner::check_name(std::string_view name) {
  const bool lower = std::any_of(name.begin(), name.end(), is_lower);
  if (lower != is_terminal(name) && (name.front() < '0' || name.front() > '9') &&
      name.front() != '-')
    return true;
  scan_.invalid(
      fmt::format("\"{}\": rules have names in lower case, terminals in upper case", name));
  return false;
}

uint32_t LarkScanner::string() {
  std::u32string text = quoted();
  if (scan_.failed()) return 0;
  const bool ignores_case = in_.take("i");
  const size_t end = in_.position();
  space();
  if (in_.take("..")) return ignores_case ? scan_.invalid("a range has no flags") : range(text);
  in_.back_to(end);
  ExprPool& pool = scan_.rules().pool();
  if (!ignores_case) return scan_.rules().text(pool.literal(text));
  ExprId folded = ExprPool::kEmpty;
  for (size_t i = text.size(); i-- > 0;)
    folded = pool.concat(pool.chars(ignore_case(CharSet::of(text[i]))), folded);
  return scan_.rules().text(folded);
}

uint32_t LarkScanner::range(const std::u32string& first) {
  space();
  if (in_.peek() != '"') return scan_.invalid("expected the end of a range: \"a\"..\"z\"");
  const std::u32string last = quoted();
  if (scan_.failed()) return 0;
  if (first.size() != 1 || last.size() != 1 || last[0] < first[0])
    return scan_.invalid("a range goes from one character to a later one: \"a\"..\"z\"");
  return scan_.rules().text(scan_.rules().pool().chars(CharSet{{first[0], last[0]}}));
}

std::u32string LarkScanner::quoted() {
  in_.skip(1);
  std::u32string text;
  while (!scan_.failed() && in_.peek() != '"') {
    if (in_.at_end() || in_.peek() == '\n') {
      scan_.invalid("a string without its closing quotation mark in this line");
    } else {
      text += in_.take("\\") ? escaped() : in_.next();
    }
  }
  in_.skip(1);
  return text;
}

char32_t LarkScanner::escaped() {
  const char c = in_.peek();
  in_.skip(in_.at_end() ? 0 : 1);
  switch (c) {
    case '"':
    case '\\': return static_cast<char32_t>(c);
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'f': return '\f';
    case 'x': return scan_.hex(2);
    case 'u': return scan_.hex(4);
    case 'U': return scan_.hex(8);
    default: return scan_.invalid("unknown escape: write \\\\ for a backslash");
  }
}

uint32_t LarkScanner::regex() {
  const size_t begin = in_.position();
  in_.skip(1);
  const size_t length = regex_length();
  if (length == 0) return scan_.invalid("expected an expression and its closing \"/\"");
  const std::string_view pattern = in_.rest().substr(0, length);
  in_.skip(length + 1);
  TerminalFlags flags;
  for (; is_lower(in_.peek()); in_.skip(1)) {
    const char flag = in_.peek();
    if (flag == 'i') flags.ignore_case = true;
    if (flag == 's') flags.dot_all = true;
    if (flag == 'x') flags.verbose = true;
    if (std::string_view("imsxu").find(flag) == std::string_view::npos)
      return scan_.unsupported(
          fmt::format("the flag \"{}\" is not supported: i, m, s, u and x are", flag));
  }
  if (!flags.verbose && pattern.find('\n') != std::string_view::npos)
    return scan_.invalid("a line end in an expression without the flag x");
  auto expr = parse_terminal_regex(scan_.rules().pool(), pattern, flags, scan_.max_depth());
  if (expr) return scan_.rules().text(*expr);
  in_.back_to(begin);
  return scan_.fail(expr.error().kind, expr.error().message);
}

// Returns the offset of the closing slash; 0: missing, or nothing precedes it.
size_t LarkScanner::regex_length() const {
  const std::string_view text = in_.rest();
  size_t n = 0;
  while (n < text.size() && text[n] != '/') n += text[n] == '\\' ? 2 : 1;
  return n < text.size() ? n : 0;
}

// Returns the offset after the object's closing brace.
size_t LarkScanner::json_length() const {
  const std::string_view text = in_.rest();
  size_t n = 0, open = 0;
  for (bool quoted = false; n < text.size(); ++n) {
    const char c = text[n];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++n;
    if (quoted || (c != '{' && c != '}')) continue;
    open += c == '{' ? 1 : -1;
    if (open == 0) return n + 1;
  }
  return text.size();
}

}  // namespace penstock::grammar
