// Unicode text the way Python's str sees it: valid UTF-8 in memory, positions counted in code points.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::jinja {

// Byte offset of the first byte that is not part of valid UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

// All below require valid UTF-8.
size_t count_code_points(std::string_view text);
char32_t decode(std::string_view text, size_t& position);       // position moves to the next code point
size_t previous(std::string_view text, size_t position);        // start of the code point before position
size_t byte_offset(std::string_view text, size_t code_points);  // clamps to the end
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
// Without chars: white space. With chars: any code point of chars.
std::string_view strip(std::string_view text, Side side, const std::string_view* chars = nullptr);

// str.splitlines; of more than `most` lines the first most + 1.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends, size_t most);

}  // namespace penstock::jinja
