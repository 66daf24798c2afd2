// Cache keys of grammar specifications.
#pragma once
#include <string>

#include "grammar/grammar.h"

namespace penstock {

// Returns a key that is equal for specifications that differ only in JSON white space, the spelling
// of strings and numbers, and the order of keywords where it has no meaning. (The order of
// properties has one.)
std::string grammar_key(const grammar::GrammarSpec& spec);
// Returns a key that is equal only for the same text.
std::string grammar_text_key(const grammar::GrammarSpec& spec);

}  // namespace penstock
