// From the dialect of tokenizer files (Oniguruma's and Rust's) to PCRE2's.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// The pattern as PCRE2 with UTF, UCP and MULTILINE reads it: \s, \w, \d, \h, \b and names of properties with the
// meaning that they have elsewhere; classes inside classes, with unions, complements and intersections; {n,m}+
// repeats and is not possessive.
// Errors: kCorruptFile (a class without an end, or nested too deeply).
Result<std::string> to_pcre(std::string_view pattern);

}  // namespace penstock
