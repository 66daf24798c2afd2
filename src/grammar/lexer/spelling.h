// Spellings: translate an automaton over characters to one over bytes, as UTF-8 or as the inside of
// a JSON string.
#pragma once
#include "grammar/lexer/byte_dfa.h"
#include "grammar/parts/budget.h"
#include "grammar/regex/char_dfa.h"

namespace penstock::grammar {

enum class Spelling : uint8_t {
  kUtf8,
  // The inside of a JSON string and its closing quotation mark. Only characters that need it are
  // escaped, besides "\/"; control characters are spelled by their short form ("\n") or as
  // "\u000a".
  kJson,
  kJsonPart,        // as kJson, without the closing quotation mark: what stands further inside
  kJsonAllEscapes,  // as kJson; every character may be spelled \uXXXX too
  // one spelling for each text: the shortest, with hexadecimal digits in lower case
  kJsonCanonical,
};

// Returns an automaton over the spellings, with the tags of dfa. Errors: kTooLarge.
Compiled<ByteDfa> spell(const CharDfa& dfa, Spelling spelling, Budget& budget);

// Returns the canonical JSON spelling of UTF-8 text, without the quotation marks.
std::string canonical_json(std::string_view text);

}  // namespace penstock::grammar
