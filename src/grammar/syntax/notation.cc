#include "grammar/syntax/notation.h"

#include <algorithm>

#include "grammar/parts/text_cursor.h"
#include "grammar/syntax/ebnf.h"
#include "grammar/syntax/lark.h"

namespace penstock::grammar {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

std::string_view behind_comments(std::string_view text) {
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    if (!text.starts_with('#') && !text.starts_with("//")) return text;
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
}

}  // namespace

bool is_lark(std::string_view text) {
  text = behind_comments(text);
  if (text.starts_with('%')) return true;
  const bool marked = text.starts_with('?') || text.starts_with('!');
  text.remove_prefix(std::min(text.find_first_not_of("?!"), text.size()));
  size_t n = 0;
  while (n < text.size() && is_name_char(text[n])) ++n;
  if (n == 0) return false;
  text.remove_prefix(n);
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  if (text.starts_with("::=")) return false;
  return marked || text.starts_with(':') || text.starts_with('.') || text.starts_with('{') ||
         text.starts_with('[');
}

Compiled<uint32_t> parse_rules(std::string_view text, Rules& rules, const GoalOfSchema& goal_of,
                               const Vocabulary* vocabulary, Budget& budget) {
  if (is_lark(text)) return parse_lark(text, rules, goal_of, vocabulary, budget);
  return parse_ebnf(text, rules, vocabulary, static_cast<int>(budget.limits().max_depth));
}

}  // namespace penstock::grammar
