// ASCII letters and blanks, independent of the locale.
#pragma once
#include <string>
#include <string_view>

namespace penstock {

inline char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = ascii_lower(c);
  return lower;
}

// Returns the text without leading and trailing spaces and tabs.
inline std::string_view trim_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == text.npos ? text.substr(0, 0)
                            : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace penstock
