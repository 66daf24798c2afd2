#include "text/unicode/unicode.h"

#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utext.h>

#include <algorithm>

#include "base/check.h"
#include "text/unicode/newer_characters.h"

namespace penstock::unicode {
namespace {

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Returns the length of the longest prefix at position that may begin a well-formed sequence, at
// least 1.
int maximal_subpart(std::string_view text, size_t position) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const size_t left = text.size() - position;
  const unsigned char first = at(0);
  const int length = sequence_length(first);
  if (length == 1 || left < 2) return 1;
  unsigned char low = 0x80, high = 0xBF;
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  if (at(1) < low || at(1) > high) return 1;
  int n = 2;
  while (n < length && static_cast<size_t>(n) < left && is_continuation(at(n))) ++n;
  return n;
}

const icu::Normalizer2* normalizer(Form form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* n = nullptr;
  switch (form) {
    case Form::kNfc: n = icu::Normalizer2::getNFCInstance(status); break;
    case Form::kNfd: n = icu::Normalizer2::getNFDInstance(status); break;
    case Form::kNfkc: n = icu::Normalizer2::getNFKCInstance(status); break;
    case Form::kNfkd: n = icu::Normalizer2::getNFKDInstance(status); break;
  }
  PENSTOCK_CHECK(U_SUCCESS(status) && n != nullptr);
  return n;
}

// The reference tokenizers contain tables of old Unicode versions, in which later characters are
// unassigned.
constexpr uint8_t kCategoriesVersion = 8;     // of punctuation, and of BERT's marks and controls
constexpr uint8_t kNormalizationVersion = 9;  // of normalization forms and marks

// Whether Unicode `version` has this character.
bool is_in(char32_t c, uint8_t version) {
  if (c < 0x560 || (c >= 0x4E00 && c <= 0x9FD5) || (c >= 0xAC00 && c <= 0xD7A3)) return true;
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] <= version;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Puts each run of marks into the order of normalized text, by their combining classes.
void sort_marks(std::u32string& run) {
  const auto class_of = [](char32_t c) { return u_getCombiningClass(static_cast<UChar32>(c)); };
  for (auto begin = run.begin(); begin != run.end();) {
    const auto end = std::find_if(begin, run.end(), [&](char32_t c) { return class_of(c) == 0; });
    std::stable_sort(begin, end, [&](char32_t a, char32_t b) { return class_of(a) < class_of(b); });
    begin = end == run.end() ? end : end + 1;
  }
}

// What stands for the characters of `run` in normalized text before it is put in order.
std::u32string decomposed(std::string_view run, Form form) {
  const bool canonical = form == Form::kNfc || form == Form::kNfd;
  const icu::Normalizer2* by = normalizer(canonical ? Form::kNfd : Form::kNfkd);
  std::u32string out;
  for (size_t i = 0; i < run.size();) {
    const Decoded d = decode(run, i);
    i += d.length;
    icu::UnicodeString parts;
    if (!by->getDecomposition(static_cast<UChar32>(d.code), parts)) {
      out += d.code;
      continue;
    }
    for (int32_t at = 0; at < parts.length(); at = parts.moveIndex32(at, 1))
      out += static_cast<char32_t>(parts.char32At(at));
  }
  return out;
}

// An equivalent text in which long runs of marks are in order: ICU inserts each mark before those
// that come later, in quadratic time where they are not.
std::string with_marks_in_order(std::string_view valid, Form form) {
  constexpr size_t kFewMarks = 64;
  const icu::Normalizer2* by = normalizer(form);
  const auto follows = [&](const Decoded& d) {
    return d.code >= 0x300 && !by->hasBoundaryBefore(static_cast<UChar32>(d.code));
  };
  std::string out;
  size_t n_copied = 0;
  for (size_t i = 0; i < valid.size();) {
    const size_t begin = i;
    size_t n = 0;
    for (Decoded d; i < valid.size() && follows(d = decode(valid, i)); i += d.length) ++n;
    if (n > kFewMarks) {
      std::u32string run = decomposed(valid.substr(begin, i - begin), form);
      sort_marks(run);
      out += valid.substr(n_copied, begin - n_copied);
      for (const char32_t c : run) append(out, c);
      n_copied = i;
    }
    if (n == 0) i += decode(valid, i).length;
  }
  out += valid.substr(n_copied);
  return out;
}

void append_normalized(std::string& out, std::string_view text, Form form) {
  const std::string valid = with_marks_in_order(text, form);
  UErrorCode status = U_ZERO_ERROR;
  std::string part;
  icu::StringByteSink<std::string> sink(&part);
  normalizer(form)->normalizeUTF8(
      0, icu::StringPiece(valid.data(), static_cast<int32_t>(valid.size())), sink, nullptr, status);
  out += U_SUCCESS(status) ? part : valid;
}

}  // namespace

Decoded decode_multibyte(std::string_view text, size_t position) {
  const auto* s = reinterpret_cast<const unsigned char*>(text.data()) + position;
  const size_t left = text.size() - position;
  const unsigned char a = s[0];
  const int length = sequence_length(a);
  if (length == 1 || left < static_cast<size_t>(length)) return {kReplacement, 1, false};
  for (int i = 1; i < length; ++i) {
    if (!is_continuation(s[i])) return {kReplacement, 1, false};
  }
  if (length == 2) return {static_cast<char32_t>((a & 0x1F) << 6 | (s[1] & 0x3F)), 2, true};
  if (length == 3) {
    const char32_t code = (a & 0x0F) << 12 | (s[1] & 0x3F) << 6 | (s[2] & 0x3F);
    if (code < 0x800 || (code >= 0xD800 && code <= 0xDFFF)) return {kReplacement, 1, false};
    return {code, 3, true};
  }
  const char32_t code = (a & 0x07) << 18 | (s[1] & 0x3F) << 12 | (s[2] & 0x3F) << 6 | (s[3] & 0x3F);
  if (code < 0x10000 || code > 0x10FFFF) return {kReplacement, 1, false};
  return {code, 4, true};
}

void append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

bool is_valid(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const Decoded d = decode(text, i);
    if (!d.valid) return false;
    i += d.length;
  }
  return true;
}

std::string replace_invalid_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  for (size_t i = 0; i < text.size();) {
    const Decoded d = decode(text, i);
    if (d.valid) {
      out.append(text, i, d.length);
    } else {
      append(out, kReplacement);
    }
    i += d.length;
  }
  return out;
}

std::string replace_invalid_sequences(std::string_view text) {
  if (is_valid(text)) return std::string(text);
  std::string out;
  out.reserve(text.size() + 16);
  for (size_t i = 0; i < text.size();) {
    const Decoded d = decode(text, i);
    if (d.valid) {
      out.append(text, i, d.length);
      i += d.length;
    } else {
      append(out, kReplacement);
      i += maximal_subpart(text, i);
    }
  }
  return out;
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return u_isUWhiteSpace(static_cast<UChar32>(c));
}

bool is_word(char32_t c) {
  if (c < 0x80)
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  if (const NewerCharacters* newer = find_newer(c); newer != nullptr) {
    constexpr std::string_view kWordCategories = "LM";
    return kWordCategories.find(newer->category[0]) != std::string_view::npos ||
           newer->category == "Nd" || newer->category == "Pc" ||
           (newer->flags & NewerCharacters::kAlphabetic) != 0;
  }
  const auto u = static_cast<UChar32>(c);
  constexpr uint32_t kMask = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK | U_GC_L_MASK;
  return (U_GET_GC_MASK(u) & kMask) != 0 || u_isUAlphabetic(u) ||
         u_hasBinaryProperty(u, UCHAR_JOIN_CONTROL);
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  if (const NewerCharacters* newer = find_newer(c); newer != nullptr)
    return newer->category[0] == 'N';
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_N_MASK) != 0;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  if (c == 0x166D) return true;  // a symbol in later versions
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_P_MASK) != 0 &&
         is_in(c, kCategoriesVersion);
}

bool is_mark(char32_t c) {
  return c >= 0x80 && (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_M_MASK) != 0 &&
         is_in(c, kNormalizationVersion);
}

bool is_nonspacing_mark(char32_t c) {
  return c >= 0x80 && (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_MN_MASK) != 0 &&
         is_in(c, kCategoriesVersion);
}

bool is_control(char32_t c) {
  if (c < 0x80 && c != 0x7F && c >= ' ') return false;
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & (U_GC_C_MASK & ~U_GC_CN_MASK)) != 0 &&
         is_in(c, kCategoriesVersion);
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x0130) {
    append(out, 'i');
    append(out, 0x0307);
  } else {
    append(out, static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))));
  }
}

std::string normalize(std::string_view text, Form form) {
  if (is_ascii(text)) return std::string(text);
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  constexpr size_t kMaxRun = size_t{1} << 30;  // ICU's sizes are 32-bit
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const Decoded d = decode(text, i);
    // Unassigned characters neither reorder nor compose, so the parts around them are
    // independent.
    if (!d.valid || i - start > kMaxRun || !is_in(d.code, kNormalizationVersion)) {
      append_normalized(out, text.substr(start, i - start), form);
      out.append(text, i, d.length);
      start = i + d.length;
    }
    i += d.length;
  }
  append_normalized(out, text.substr(start), form);
  return out;
}

Graphemes::Graphemes(std::string_view text)
    : text_(nullptr), iterator_(nullptr), size_(text.size()) {
  UErrorCode status = U_ZERO_ERROR;
  UText* utext = utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &status);
  UBreakIterator* iterator = ubrk_open(UBRK_CHARACTER, "en", nullptr, 0, &status);
  if (U_SUCCESS(status)) ubrk_setUText(iterator, utext, &status);
  PENSTOCK_CHECK(U_SUCCESS(status));
  text_ = utext;
  iterator_ = iterator;
}

Graphemes::~Graphemes() {
  ubrk_close(static_cast<UBreakIterator*>(iterator_));
  utext_close(static_cast<UText*>(text_));
}

size_t Graphemes::next() {
  const int32_t end = ubrk_next(static_cast<UBreakIterator*>(iterator_));
  return end == UBRK_DONE ? size_ : static_cast<size_t>(end);
}

}  // namespace penstock::unicode
