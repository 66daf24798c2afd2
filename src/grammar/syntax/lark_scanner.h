// The scanner of Lark's notation: lines, names, strings and regular expressions.
#pragma once
#include "grammar/syntax/rule_scanner.h"

namespace penstock::grammar {

class LarkScanner {
 public:
  // REQUIRES: `scan` outlives this object.
  explicit LarkScanner(RuleScanner& scan) : scan_(scan), in_(scan.in()) {}

  // Skips white space and comments up to the end of the line; a backslash before the line end
  // continues the line.
  void space();
  void lines();  // as space(), line ends included
  // Skips "|" between alternatives and returns whether it was there; only before it a definition
  // may continue on another line.
  bool bar();

  std::string name();  // reads a name; "": there is none
  static bool is_terminal(std::string_view name);
  // Whether the name is valid for a rule or terminal; if not, records a refusal.
  bool check_name(std::string_view name);

  uint32_t string();  // reads "..." "..."i or "a".."z"
  uint32_t regex();   // reads /.../ with flags
  // Returns the length of the JSON object that begins here: up to its closing brace, or up to the
  // end of the text.
  size_t json_length() const;

 private:
  void comment();
  bool line_goes_on();
  uint32_t range(const std::u32string& first);
  std::u32string quoted();
  char32_t escaped();
  size_t regex_length() const;

  RuleScanner& scan_;
  TextCursor& in_;
};

}  // namespace penstock::grammar
