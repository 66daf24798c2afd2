// Grammars in the notation of llama.cpp (GBNF) and XGrammar (EBNF):
//
//   root ::= "literal" [a-z] . rule ( a | b ) x* x+ x? x{2} x{2,} x{2,5}   # a comment
//
// Rules may span lines; a rule ends where the next begins. "\x41" "\u00e9" "\U0001F600" are
// characters. <[12,20-29]> and <name> are special tokens. The start rule is `root`.
#pragma once
#include <string_view>

#include "grammar/syntax/rules.h"
#include "grammar/vocabulary/vocabulary.h"

namespace penstock::grammar {

// Returns the index of the start rule. vocabulary: for special tokens; may be null. Refusals name
// the line and column.
Compiled<uint32_t> parse_ebnf(std::string_view text, Rules& rules, const Vocabulary* vocabulary,
                              int max_depth);

}  // namespace penstock::grammar
