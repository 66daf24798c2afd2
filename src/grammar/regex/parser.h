// The parser of regular expressions: ECMAScript's dialect (ECMA-262, with the Unicode flag and the
// lenient escapes of its Annex B), plus (?P<name>...), a leading (?i) or (?s), \A and \z, \a and
// \e.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "grammar/parts/refusal.h"
#include "grammar/regex/expr.h"

namespace penstock::grammar {

enum class RegexScope : uint8_t {
  kWhole,   // the expression matches the whole text
  kSearch,  // the expression matches anywhere in the text, as JSON Schema's `pattern`
};

// Look-ahead is supported outside of repetitions, anchors anywhere but in repetitions; look-behind,
// word boundaries and back-references are not (kUnsupported). Refusals have no `where`; the message
// names the position.
Compiled<ExprId> parse_regex(ExprPool& pool, std::string_view pattern, RegexScope scope,
                             int max_depth = 256);

// A cache of parsed expressions, which parses each of them once.
class RegexTable {
 public:
  RegexTable(ExprPool& pool, int max_depth) : pool_(pool), max_depth_(max_depth) {}
  Compiled<ExprId> parse(std::string_view pattern, RegexScope scope);

 private:
  ExprPool& pool_;
  const int max_depth_;
  std::map<std::pair<std::string, RegexScope>, ExprId> known_;
};

// Parses the expression of a terminal, as Python's re and Rust's regex both read it: "." is all but
// \n, \d \w \s are Unicode's (UTS 18, annex C). kUnsupported: syntax that depends on the
// surrounding text (anchors, look-ahead), on the order of matches (lazy repetitions) or on the
// library (sets in classes, octal escapes).
struct TerminalFlags {
  bool ignore_case = false, dot_all = false;
  // white space and comments after # are ignored
  bool verbose = false;
};
Compiled<ExprId> parse_terminal_regex(ExprPool& pool, std::string_view pattern,
                                      const TerminalFlags& flags, int max_depth = 256);

}  // namespace penstock::grammar
