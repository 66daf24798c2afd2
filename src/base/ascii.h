// Kinds of ASCII characters, whatever the process's locale is: <cctype> asks the locale that a Python
// program may have set.
#pragma once
#include <string>
#include <string_view>

namespace penstock {

inline char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline char ascii_upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

inline bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

inline bool is_ascii_letter(char c) { return ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z'; }

inline bool is_ascii_alnum(char c) { return is_ascii_letter(c) || is_ascii_digit(c); }

inline bool is_ascii_hex_digit(char c) {
  return is_ascii_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'f');
}

// Returns true for a space, a tab, a vertical tab, a form feed and the ends of a line.
inline bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

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
