// Characters that Unicode 15 to 16 added. PCRE2's tables end with Unicode 14, ICU's with 15 (Debian
// 12); the regular expressions of Hugging Face's tokenizers and of tiktoken follow Unicode 16, as
// this engine does. Characters of later versions are unassigned in all of them.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace penstock::unicode {

// A range of characters with the same properties. Names of scripts are in lower case without
// underscores.
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
  std::string_view known_category;  // category in Unicode 14; "Cn": unassigned
  std::string_view script, short_script;
  uint8_t flags;
};

// The ranges in ascending order.
std::span<const NewerCharacters> newer_characters();
// Returns the range that contains c, or nullptr.
const NewerCharacters* find_newer(char32_t c);
// REQUIRES: text is well-formed UTF-8.
bool has_newer_characters(std::string_view text);

// Whether the characters have a property: the short name of a category ("lu", "l", "l&"), the name
// of a script ("han", "hani", "sc=han") or of a flag, in lower case without separators. kUnknown:
// the table does not have this property.
enum class Has : uint8_t { kNo, kYes, kUnknown };
Has has_property(const NewerCharacters& characters, std::string_view name);

}  // namespace penstock::unicode
