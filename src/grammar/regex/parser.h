// Regular expressions as people write them: ECMAScript's dialect (ECMA-262, with the Unicode flag and the lenient
// escapes of its Annex B), plus (?P<name>...), a leading (?i) or (?s), \A and \z, \a and \e.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "grammar/parts/refusal.h"
#include "grammar/regex/expr.h"

namespace penstock::grammar {

enum class RegexScope : uint8_t {
  kWhole,   // the expression describes the whole text
  kSearch,  // it matches somewhere in it, as `pattern` of JSON Schema does
};

// Look-ahead is supported outside of repetitions, anchors anywhere but in repetitions; look-behind, word boundaries
// and back-references are not (kUnsupported). Refusals have no place but the position in their message.
Compiled<ExprId> parse_regex(ExprPool& pool, std::string_view pattern, RegexScope scope, int max_depth = 256);

// Those of many schemas, each parsed once.
class RegexTable {
 public:
  RegexTable(ExprPool& pool, int max_depth) : pool_(pool), max_depth_(max_depth) {}
  Compiled<ExprId> parse(std::string_view pattern, RegexScope scope);

 private:
  ExprPool& pool_;
  const int max_depth_;
  std::map<std::pair<std::string, RegexScope>, ExprId> known_;
};

// A terminal's expression, as Python's re and Rust's regex both read it: "." is all but \n, \d \w \s are Unicode's
// (UTS 18, annex C). What depends on the text around it (anchors, look-ahead), on which match comes first (lazy
// repetitions) or on which of the two reads it (sets in classes, octal escapes) is kUnsupported.
struct TerminalFlags {
  bool ignore_case = false, dot_all = false;
  bool verbose = false;  // white space and comments behind # are not part of it
};
Compiled<ExprId> parse_terminal_regex(ExprPool& pool, std::string_view pattern, const TerminalFlags& flags,
                                      int max_depth = 256);

}  // namespace penstock::grammar
