#include "jinja/text.h"

#include <unicode/ucasemap.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <memory>

namespace penstock::jinja {
namespace {

struct CloseCaseMap {
  void operator()(UCaseMap* map) const { ucasemap_close(map); }
};

using CaseFunction = int32_t (*)(const UCaseMap*, char*, int32_t, const char*, int32_t,
                                 UErrorCode*);

std::string map_case(std::string_view text, CaseFunction function) {
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<UCaseMap, CloseCaseMap> map(ucasemap_open("", 0, &status));
  if (U_FAILURE(status) || text.empty()) return std::string(text);
  std::string out(text.size() + 16, '\0');
  for (int attempt = 0; attempt < 2; ++attempt) {
    status = U_ZERO_ERROR;
    const int32_t n = function(map.get(), out.data(), static_cast<int32_t>(out.size()), text.data(),
                               static_cast<int32_t>(text.size()), &status);
    out.resize(static_cast<size_t>(n < 0 ? 0 : n));
    if (status != U_BUFFER_OVERFLOW_ERROR) break;
  }
  return U_FAILURE(status) ? std::string(text) : out;
}

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool contains(std::string_view chars, char32_t wanted) {
  for (size_t i = 0; i < chars.size();) {
    if (decode(chars, i) == wanted) return true;
  }
  return false;
}

// Returns the title case of one code point, which may be several code points.
std::string title_letter(std::string_view letter) {
  size_t i = 0;
  const char32_t c = decode(letter, i);
  const std::string upper = to_upper(letter);
  size_t first = 0;
  decode(upper, first);
  if (first < upper.size())
    return upper.substr(0, first) + to_lower(std::string_view(upper).substr(first));
  std::string out;
  append_utf8(out, static_cast<char32_t>(u_totitle(static_cast<UChar32>(c))));
  return out;
}

bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  const int32_t size = static_cast<int32_t>(text.size());
  for (int32_t i = 0; i < size;) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const int32_t start = i;
    UChar32 c = 0;
    U8_NEXT(reinterpret_cast<const uint8_t*>(text.data()), i, size, c);
    if (c < 0) return static_cast<size_t>(start);
  }
  return std::string_view::npos;
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

char32_t decode(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<char32_t>(static_cast<unsigned char>(text[i]))
                           : char32_t{0x80};
  };
  const char32_t lead = byte(position++);
  if (lead < 0x80) return lead;
  const int extra = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  char32_t c = lead & (0x3fu >> extra);
  for (int i = 0; i < extra; ++i) c = (c << 6) | (byte(position++) & 0x3f);
  if (position > text.size()) position = text.size();
  return c;
}

size_t previous(std::string_view text, size_t position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xc0) == 0x80);
  return position;
}

size_t byte_offset(std::string_view text, size_t code_points) {
  size_t position = 0;
  while (position < text.size()) {
    if ((static_cast<unsigned char>(text[position]) & 0xc0) != 0x80) {
      if (code_points == 0) return position;
      --code_points;
    }
    ++position;
  }
  return position;
}

void append_utf8(std::string& out, char32_t c) {
  char bytes[U8_MAX_LENGTH];
  int32_t n = 0;
  U8_APPEND_UNSAFE(bytes, n, static_cast<UChar32>(c));
  out.append(bytes, static_cast<size_t>(n));
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  const uint32_t mask = U_GET_GC_MASK(static_cast<UChar32>(c));
  return (mask & (U_GC_C_MASK | U_GC_Z_MASK)) == 0;
}

bool is_alpha(char32_t c) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_L_MASK) != 0; }
bool is_decimal(char32_t c) {
  return u_charType(static_cast<UChar32>(c)) == U_DECIMAL_DIGIT_NUMBER;
}
bool is_digit(char32_t c) {
  const int type = u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool is_numeric(char32_t c) {
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}
bool is_word(char32_t c) {
  return c == '_' || is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c);
}
bool is_lower(char32_t c) { return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_LOWERCASE); }
bool is_upper(char32_t c) { return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_UPPERCASE); }
bool is_title(char32_t c) { return u_charType(static_cast<UChar32>(c)) == U_TITLECASE_LETTER; }

bool is_identifier(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const bool first = i == 0;
    const auto c = static_cast<UChar32>(decode(text, i));
    const bool ok =
        c == '_' || u_hasBinaryProperty(c, first ? UCHAR_XID_START : UCHAR_XID_CONTINUE);
    if (!ok) return false;
  }
  return !text.empty();
}

std::string to_upper(std::string_view text) {
  if (!is_ascii(text)) return map_case(text, ucasemap_utf8ToUpper);
  std::string out(text);
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return out;
}

std::string to_lower(std::string_view text) {
  if (!is_ascii(text)) return map_case(text, ucasemap_utf8ToLower);
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  size_t first = 0;
  decode(text, first);
  return title_letter(text.substr(0, first)) + to_lower(text.substr(first));
}

std::string title_words(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = decode(text, i);
    const std::string_view letter = text.substr(start, i - start);
    out += after_cased ? to_lower(letter) : title_letter(letter);
    after_cased = is_cased(c);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = decode(text, i);
    const std::string_view one = text.substr(start, i - start);
    out += is_upper(c) ? to_lower(one) : is_lower(c) ? to_upper(one) : std::string(one);
  }
  return out;
}

std::string_view strip(std::string_view text, Side side, const std::string_view* chars) {
  const auto drop = [&](char32_t c) {
    return chars != nullptr ? contains(*chars, c) : is_space(c);
  };
  if (side != Side::kRight) {
    while (!text.empty()) {
      size_t next = 0;
      if (!drop(decode(text, next))) break;
      text.remove_prefix(next);
    }
  }
  if (side != Side::kLeft) {
    while (!text.empty()) {
      const size_t last = previous(text, text.size());
      size_t position = last;
      if (!drop(decode(text, position))) break;
      text = text.substr(0, last);
    }
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends, size_t most) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size() && lines.size() <= most;) {
    const size_t end = i;
    const char32_t c = decode(text, i);
    if (!is_line_break(c)) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.push_back(text.substr(start, (keep_ends ? i : end) - start));
    start = i;
  }
  if (start < text.size() && lines.size() <= most) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace penstock::jinja
