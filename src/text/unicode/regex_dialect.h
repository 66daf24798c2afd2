// Translates regular expressions from the dialect of tokenizer files (Oniguruma's and Rust's) to
// PCRE2's.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Returns the pattern for PCRE2 with UTF, UCP and MULTILINE: \s, \w, \d, \h, \b and names of
// properties keep the meaning of the source dialect; classes inside classes, with unions,
// complements and intersections; {n,m}+ repeats and is not possessive. kWithNewer: classes include
// the characters that are newer than PCRE2's tables (newer_characters.h); such patterns are slower
// to match. Errors: kCorruptFile (a class without an end, or nested too deeply).
enum class Characters : uint8_t { kKnown, kWithNewer };
Result<std::string> to_pcre(std::string_view pattern, Characters characters = Characters::kKnown);

}  // namespace penstock
