// Functions on Unicode text as Python's str defines them: text is valid UTF-8, positions count code
// points.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::jinja {

// Returns the offset of the first byte that is not part of valid UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

// REQUIRES, for all functions below: the text is valid UTF-8.
size_t count_code_points(std::string_view text);
// Returns the code point at position and moves position to the next one.
char32_t decode(std::string_view text, size_t& position);
// Returns the start of the code point before position.
size_t previous(std::string_view text, size_t position);
// Returns the offset of a code point, at most the end of the text.
size_t byte_offset(std::string_view text, size_t code_points);
void append_utf8(std::string& out, char32_t c);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_word(char32_t c);  // \w
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_identifier(std::string_view text);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title_words(std::string_view text);  // str.title
std::string swap_case(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
// Strips white space or, with chars, all code points in chars.
std::string_view strip(std::string_view text, Side side, const std::string_view* chars = nullptr);

// str.splitlines, at most the first most + 1 lines.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends, size_t most);

}  // namespace penstock::jinja
