#include "text/unicode/newer_characters.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>

#include "base/ascii.h"
#include "text/unicode/unicode.h"

namespace penstock::unicode {
namespace {

constexpr auto kAlphabetic = NewerCharacters::kAlphabetic, kLowercase = NewerCharacters::kLowercase,
               kUppercase = NewerCharacters::kUppercase,
               kIdeographic = NewerCharacters::kIdeographic, kEmoji = NewerCharacters::kEmoji,
               kEmojiPresentation = NewerCharacters::kEmojiPresentation;

constexpr NewerCharacters kTable[] = {
#include "text/unicode/newer_characters.inc"
};

constexpr int kPageBits = 8;

// Returns which pages of 256 characters contain newer characters.
const auto& pages() {
  static const auto value = [] {
    std::bitset<(0x110000 >> kPageBits)> set;
    for (const NewerCharacters& one : kTable) {
      for (char32_t page = one.first >> kPageBits; page <= one.last >> kPageBits; ++page)
        set.set(page);
    }
    return set;
  }();
  return value;
}

struct FlagName {
  std::string_view name;
  uint8_t flag;
};
constexpr FlagName kFlagNames[] = {{"alphabetic", kAlphabetic},
                                   {"alpha", kAlphabetic},
                                   {"lowercase", kLowercase},
                                   {"lower", kLowercase},
                                   {"uppercase", kUppercase},
                                   {"upper", kUppercase},
                                   {"ideographic", kIdeographic},
                                   {"ideo", kIdeographic},
                                   {"emoji", kEmoji},
                                   {"emojipresentation", kEmojiPresentation},
                                   {"epres", kEmojiPresentation}};

bool in_category(std::string_view category, std::string_view name) {
  if (name == "l&" || name == "lc") return category == "Lu" || category == "Ll" || category == "Lt";
  return ascii_lower(category[0]) == name[0] && (name.size() == 1 || category[1] == name[1]);
}

bool is_script(std::string_view name) {
  return std::ranges::any_of(kTable, [&](const NewerCharacters& one) {
    return one.script == name || one.short_script == name;
  });
}

}  // namespace

std::span<const NewerCharacters> newer_characters() { return kTable; }

const NewerCharacters* find_newer(char32_t c) {
  if (c > 0x10FFFF || !pages().test(c >> kPageBits)) return nullptr;
  const auto* found = std::ranges::lower_bound(kTable, c, {}, &NewerCharacters::last);
  return found != std::end(kTable) && found->first <= c ? found : nullptr;
}

bool has_newer_characters(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  for (size_t i = 0; i < text.size();) {
    uint64_t eight = kHighBits;
    if (text.size() - i >= sizeof eight) std::memcpy(&eight, text.data() + i, sizeof eight);
    if ((eight & kHighBits) == 0) {
      i += sizeof eight;
      continue;
    }
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0xE0) {  // none is below U+0800
      i += first < 0xC0 ? 1 : 2;
      continue;
    }
    const Decoded d = decode(text, i);
    if (find_newer(d.code) != nullptr) return true;
    i += d.length;
  }
  return false;
}

Has has_property(const NewerCharacters& characters, std::string_view name) {
  const auto answer = [](bool has) { return has ? Has::kYes : Has::kNo; };
  constexpr std::string_view kCategoryLetters = "lmnpszc";
  if (name == "any") return Has::kYes;
  if (!name.empty() && name.size() <= 2 && kCategoryLetters.find(name[0]) != std::string_view::npos)
    return answer(in_category(characters.category, name));
  for (const FlagName& one : kFlagNames) {
    if (one.name == name) return answer((characters.flags & one.flag) != 0);
  }
  const size_t sign = name.find_first_of("=:");
  if (sign != std::string_view::npos) {
    const std::string_view kind = name.substr(0, sign);
    if (kind != "sc" && kind != "script" && kind != "scx" && kind != "scriptextensions")
      return Has::kUnknown;
    name.remove_prefix(sign + 1);
  }
  if (!is_script(name)) return Has::kUnknown;
  return answer(characters.script == name || characters.short_script == name);
}

}  // namespace penstock::unicode
