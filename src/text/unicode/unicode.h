// UTF-8 and the Unicode properties that tokenizers need, as the reference tokenizers define them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::unicode {

inline constexpr char32_t kReplacement = 0xFFFD;

// One decoded code point: valid is false (and length 1, code U+FFFD) where the bytes are not
// well-formed UTF-8.
struct Decoded {
  char32_t code;
  int length;
  bool valid;
};
Decoded decode_multibyte(std::string_view text, size_t position);
// REQUIRES: position < text.size().
inline Decoded decode(std::string_view text, size_t position) {
  const auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) return {first, 1, true};
  return decode_multibyte(text, position);
}

// Returns the length in bytes of the UTF-8 character that starts with this byte; 1 for a byte that
// starts none.
inline int sequence_length(unsigned char first) {
  return first < 0xC2 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 1;
}

void append(std::string& out, char32_t code);

bool is_valid(std::string_view text);
// Every byte that is not part of well-formed UTF-8 becomes one U+FFFD.
std::string replace_invalid_bytes(std::string_view text);
// Every maximal part of an ill-formed sequence becomes one U+FFFD, as browsers, Rust and Python
// decode.
std::string replace_invalid_sequences(std::string_view text);

// White_Space, \w and numbers follow Unicode 16 (newer_characters.h); punctuation, controls and
// BERT's marks Unicode 8, marks Unicode 9, as in the reference tokenizers.
bool is_white_space(char32_t c);  // White_Space
// regex \w: Alphabetic, M, Nd, Pc, Join_Control
bool is_word(char32_t c);
bool is_numeric(char32_t c);          // Nd, Nl, No
bool is_punctuation(char32_t c);      // P*, or ASCII punctuation and symbols
bool is_mark(char32_t c);             // Mn, Mc, Me
bool is_nonspacing_mark(char32_t c);  // Mn
// Cc, Cf, Cs, Co but for tab, newline, carriage return (as BERT has it)
bool is_control(char32_t c);
bool is_chinese(char32_t c);                      // the CJK blocks BERT isolates
void append_lower(std::string& out, char32_t c);  // full lower-case mapping without context

enum class Form : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// Normalizes text by the tables of Unicode 9: later characters and ill-formed bytes are unchanged.
std::string normalize(std::string_view text, Form form);

// Calls f(cluster) for each extended grapheme cluster of text. REQUIRES: text is well-formed UTF-8.
template <class F>
void for_each_grapheme(std::string_view text, F&& f);
// Iterator over the byte offsets of the ends of grapheme clusters, for for_each_grapheme().
class Graphemes {
 public:
  explicit Graphemes(std::string_view text);
  ~Graphemes();
  Graphemes(const Graphemes&) = delete;
  Graphemes& operator=(const Graphemes&) = delete;
  // returns the end of the next cluster; text.size() when done
  size_t next();

 private:
  void* text_;
  void* iterator_;
  size_t size_;
};
template <class F>
void for_each_grapheme(std::string_view text, F&& f) {
  Graphemes ends(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = ends.next();
    f(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace penstock::unicode
