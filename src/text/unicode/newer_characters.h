// Characters of Unicode 15 to 16. PCRE2's tables end with Unicode 14 and ICU's with 15 (Debian 12), those of the
// expressions of Hugging Face's tokenizers and of tiktoken with 16, which is the version that is followed here.
// Characters of later versions are unassigned to all of them.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace penstock::unicode {

// Characters with the same properties. Names are in small letters, without underscores; categories as they are.
struct NewerCharacters {
  enum Flag : uint8_t {
    kAlphabetic = 1,
    kLowercase = 2,
    kUppercase = 4,
    kIdeographic = 8,
    kEmoji = 16,
    kEmojiPresentation = 32,
  };
  char32_t first, last;
  std::string_view category;        // "Lu"
  std::string_view known_category;  // in Unicode 14; "Cn": none
  std::string_view script, short_script;
  uint8_t flags;
};

// Ascending.
std::span<const NewerCharacters> newer_characters();
// nullptr: this character is none of them.
const NewerCharacters* find_newer(char32_t c);
// REQUIRES: text is well-formed UTF-8.
bool has_newer_characters(std::string_view text);

// Whether these have a property: a category's short name ("lu", "l", "l&"), a script's name ("han", "hani", "sc=han") or a
// flag's, all in small letters without separators. kUnknown: the table does not have this property.
enum class Has : uint8_t { kNo, kYes, kUnknown };
Has has_property(const NewerCharacters& characters, std::string_view name);

}  // namespace penstock::unicode
