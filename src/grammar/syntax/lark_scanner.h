// The words of Lark's notation: lines, names, strings and expressions.
#pragma once
#include "grammar/syntax/rule_scanner.h"

namespace penstock::grammar {

class LarkScanner : protected RuleScanner {
 protected:
  using RuleScanner::RuleScanner;
  uint32_t unsupported(std::string message) { return fail(RefusalKind::kUnsupported, std::move(message)); }

  // White space and comments up to the end of the line, which a backslash hides.
  void space();
  void lines();  // likewise, with all line ends
  // The mark between alternatives; only in front of it may a definition go on in another line.
  bool bar();

  std::string name();  // "": there is none
  static bool is_terminal(std::string_view name);
  // Whether it is a name that rules or terminals can have; fails else.
  bool check_name(std::string_view name);

  uint32_t string();  // "..." "..."i or "a".."z"
  uint32_t regex();   // /.../ with flags
  // How long the JSON object is that begins here: up to the brace that closes it, or all there is.
  size_t json_length() const;

 private:
  void comment();
  bool line_goes_on();
  uint32_t range(const std::u32string& first);
  std::u32string quoted();
  char32_t escaped();
  size_t regex_length() const;
};

}  // namespace penstock::grammar
