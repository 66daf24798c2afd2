// When two schemas are the same one.
#pragma once
#include <string>

#include "grammar/grammar.h"

namespace penstock {

// Equal for specifications that are written alike but for the white space of JSON, the spelling of its strings and numbers,
// and the order of keywords where it says nothing. The order of properties does say something.
std::string grammar_key(const grammar::GrammarSpec& spec);
// Equal for the same text.
std::string grammar_text_key(const grammar::GrammarSpec& spec);

}  // namespace penstock
