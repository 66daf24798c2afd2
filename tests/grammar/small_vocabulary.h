// A vocabulary for tests: every byte, and tokens as real ones have them.
#pragma once
#include <memory>
#include <string>

#include "grammar/vocabulary/vocabulary.h"

namespace penstock::grammar {

inline constexpr TokenId kEnd = 256, kCall = 257;

inline std::shared_ptr<const Vocabulary> small_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), {"", ""});  // kEnd, kCall
  for (const char* text :
       {"{\"",  "\":",      "\": ",     "\",",      "\", \"", "\"}",    "\"]",     "},{\"", "}}",
        "[]",   "{}",       "[{\"",     "[\"",      "null",   "true",   "false",   "tr",    "ue",
        "12",   "123",      ".5",       "e+",       "00",     "a",      "ab",      "abc",   "b\"",
        "kind", "name",     "  ",       "\n\n",     " \"",    "\": \"", "\\n",     "\\u00", "\xC3",
        "\xA9", "\xC3\xA9", "\xF0\x9F", "\x98\x80", "]]",     ", ",     "a\", \"b"}) {
    tokens.emplace_back(text);
  }
  return Vocabulary::make(std::move(tokens), {kEnd}, {{"<|call|>", kCall}});
}

}  // namespace penstock::grammar
