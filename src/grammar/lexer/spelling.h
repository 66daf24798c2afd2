// How an automaton over characters is spelled in bytes: as UTF-8, or inside the quotes of a JSON string.
#pragma once
#include "grammar/lexer/byte_dfa.h"
#include "grammar/parts/budget.h"
#include "grammar/regex/char_dfa.h"

namespace penstock::grammar {

enum class Spelling : uint8_t {
  kUtf8,
  // What may stand between the quotes, and the closing quote. Characters that need no escape have none but "\/";
  // control characters are spelled in short ("\n") or as "\u000a".
  kJson,
  kJsonAllEscapes,  // every character may be spelled \uXXXX too
  kJsonCanonical,   // one spelling for every content: the shortest, hexadecimal digits in lower case
};

// Accepts with the tags of dfa. Errors: kTooLarge.
Compiled<ByteDfa> spell(const CharDfa& dfa, Spelling spelling, Budget& budget);

// The canonical spelling of UTF-8 text between quotes, without them.
std::string canonical_json(std::string_view text);

}  // namespace penstock::grammar
