// Regular expressions as people write them: ECMAScript's dialect (ECMA-262, with the Unicode flag and the lenient
// escapes of its Annex B), plus (?P<name>...), a leading (?i) or (?s), \A and \z, \a and \e.
#pragma once
#include <string_view>

#include "grammar/refusal.h"
#include "grammar/regex/expr.h"

namespace penstock::grammar {

enum class RegexScope : uint8_t {
  kWhole,   // the expression describes the whole text
  kSearch,  // it matches somewhere in it, as `pattern` of JSON Schema does
};

// Look-ahead is supported outside of repetitions, anchors anywhere but in repetitions; look-behind, word boundaries
// and back-references are not (kUnsupported). Refusals have no place but the position in their message.
Compiled<ExprId> parse_regex(ExprPool& pool, std::string_view pattern, RegexScope scope, int max_depth = 256);

}  // namespace penstock::grammar
