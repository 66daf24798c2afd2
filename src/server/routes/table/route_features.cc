#include "server/routes/table/route_features.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "base/ascii.h"

namespace penstock {
namespace {

constexpr size_t kMostRead = 64 * 1024;  // bytes of a question that are examined

// Counts occurrences of all signs. REQUIRES: lower-case text.
int count_any(std::string_view text, std::span<const std::string_view> signs) {
  int n = 0;
  for (const std::string_view sign : signs) {
    for (size_t at = text.find(sign); at != std::string_view::npos;
         at = text.find(sign, at + sign.size()))
      ++n;
  }
  return n;
}

bool has_code(std::string_view text) {
  static constexpr std::array<std::string_view, 26> kSigns = {
      "();",      "){",        ") {",       "};",      "#include", "def ",   "return ",
      "import ",  "function(", "function ", "const ",  "public ",  "void ",  "std::",
      "=>",       "->",        "!=",        "==",      "select ",  " from ", " where ",
      "console.", "print(",    "</",        "println", "import("};
  static constexpr std::array<std::string_view, 22> kWords = {
      "python",      "javascript",   "typescript", "c++",       "sql query",   "regex",
      "bash script", "compile",      "traceback",  "exception", "segfault",    "git ",
      "docker",      "api endpoint", "unit test",  "refactor",  "source code", "stack trace",
      "kubernetes",  "html",         "css ",       "algorithm"};
  if (text.find("```") != std::string_view::npos) return true;
  return count_any(text, kSigns) >= 3 || count_any(text, kWords) >= 1;
}

// Whether the text has arithmetic expressions or mathematical terms.
bool has_mathematics(std::string_view text) {
  static constexpr std::array<std::string_view, 28> kWords = {
      "how many",    "how much", "equation",  "integral",   "derivative",  "calculate",
      "probability", "solve ",   "triangle",  "percent",    "polynomial",  "matrix",
      "theorem",     "fraction", "multiply",  "divided by", "square root", "prove that",
      "sum of",      "average",  "\\frac",    "\\sum",      "\\int",       "logarithm",
      "remainder",   "ratio of", "perimeter", "compute "};
  int n_numbers = 0, n_signs = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (digit(i) && !digit(i + 1)) ++n_numbers;
    const bool sign = std::string_view("+*/=^<>%").find(text[i]) != std::string_view::npos;
    const size_t before = i > 0 && text[i - 1] == ' ' ? 2 : 1,
                 after = i + 1 < text.size() && text[i + 1] == ' ' ? 2 : 1;
    if (sign && i >= before && (digit(i - before) || digit(i + after))) ++n_signs;
  }
  const int n_words = count_any(text, kWords);
  return n_signs >= 2 || (n_signs >= 1 && n_numbers >= 2) || (n_words >= 1 && n_numbers >= 2) ||
         n_words >= 3;
}

struct LetterRange {
  uint32_t first, last;
  const char* language;
};
// Scripts that are characteristic of one language.
constexpr LetterRange kRanges[] = {
    {0x3040, 0x30ff, "ja"}, {0xac00, 0xd7af, "ko"}, {0x4e00, 0x9fff, "zh"},
    {0x0400, 0x04ff, "ru"}, {0x0370, 0x03ff, "el"}, {0x0590, 0x05ff, "he"},
    {0x0600, 0x06ff, "ar"}, {0x0900, 0x097f, "hi"}, {0x0e00, 0x0e7f, "th"}};

struct LatinLanguage {
  const char* language;
  // words that occur in most sentences of the language
  std::array<std::string_view, 8> words;
};
constexpr LatinLanguage kLatin[] = {
    {"en", {" the ", " is ", " of ", " and ", " what ", " to ", " in ", " how "}},
    {"de", {" der ", " die ", " und ", " ist ", " das ", " nicht ", " wie ", " ein "}},
    {"fr", {" le ", " les ", " est ", " et ", " une ", " des ", " que ", " la "}},
    {"es", {" el ", " los ", " es ", " y ", " una ", " del ", " que ", " la "}},
    {"it", {" il ", " che ", " di ", " un ", " non ", " della ", " come ", " la "}},
    {"pt", {" o ", " os ", " uma ", " que ", " do ", " da ", " não ", " como "}},
    {"nl", {" het ", " een ", " van ", " de ", " niet ", " hoe ", " wat ", " en "}}};

// Decodes the next UTF-8 character; an ill-formed byte counts as itself.
uint32_t next_character(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  uint32_t value = size == 4   ? first & 7u
                   : size == 3 ? first & 15u
                   : size == 2 ? first & 31u
                               : first;
  if (size > text.size()) {
    text = {};
    return 0;
  }
  for (size_t i = 1; i < size; ++i)
    value = value << 6 | (static_cast<unsigned char>(text[i]) & 63u);
  text.remove_prefix(size);
  return value;
}

std::string language_of(std::string_view lower) {
  std::array<int, std::size(kRanges)> counts{};
  int n_other = 0;
  for (std::string_view rest = lower; !rest.empty();) {
    const uint32_t letter = next_character(rest);
    n_other += letter >= 'a' && letter <= 'z' ? 1 : 0;
    for (size_t i = 0; i < std::size(kRanges); ++i)
      counts[i] += letter >= kRanges[i].first && letter <= kRanges[i].last ? 1 : 0;
  }
  if (counts[0] > 0) counts[0] += counts[2];  // Japanese uses both scripts
  const auto most = std::ranges::max_element(counts);
  if (*most > 0 && *most * 2 >= n_other) return kRanges[most - counts.begin()].language;
  std::string padded = " ";
  for (const char c : lower)
    padded += std::string_view(".,;:?!\n\t\"()").find(c) == std::string_view::npos ? c : ' ';
  padded += ' ';
  std::string best;
  int n_best = 0;
  for (const LatinLanguage& one : kLatin) {
    const int n = count_any(padded, one.words);
    if (n > n_best) n_best = n, best = one.language;
  }
  return best;
}

}  // namespace

void look_at_question(RouteFeatures& features) {
  const std::string lower = ascii_lower(std::string_view(features.question).substr(0, kMostRead));
  features.code = has_code(lower);
  features.mathematics = has_mathematics(lower);
  features.language = language_of(lower);
}

}  // namespace penstock
