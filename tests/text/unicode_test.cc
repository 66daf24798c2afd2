// Classes of characters in expressions, over all characters, against Oniguruma as Hugging Face's
// tokenizers have it.
#include "text/unicode/unicode.h"

#include <gmock/gmock.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "golden_check.h"
#include "text/steps/pre_tokenizer.h"
#include "text/unicode/newer_characters.h"
#include "text/unicode/regex.h"

namespace penstock::unicode_test {
namespace {

using Json = nlohmann::json;

const Json& unicode_golden() {
  static const Json value =
      Json::parse(golden::read_file(golden::folder() / "unicode.golden.json"));
  return value;
}

// All characters but surrogates, in order, in texts that are short enough for any expression.
struct Block {
  std::string text;
  std::vector<std::pair<size_t, char32_t>> starts;  // where each character begins
};
const std::vector<Block>& everything() {
  static const std::vector<Block> value = [] {
    std::vector<Block> blocks;
    for (char32_t c = 0; c < 0x110000; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      if (c % 4096 == 0) blocks.emplace_back();
      blocks.back().starts.emplace_back(blocks.back().text.size(), c);
      unicode::append(blocks.back().text, c);
    }
    return blocks;
  }();
  return value;
}

std::vector<bool> accepted(const std::string& expression) {
  std::vector<bool> set(0x110000);
  const auto regex = Regex::compile("(?:" + expression + ")+");
  EXPECT_TRUE(regex) << regex.error().message;
  if (!regex) return set;
  std::vector<Match> matches;
  for (const Block& block : everything()) {
    matches.clear();
    regex->find_all(block.text, matches);
    auto at = block.starts.begin();
    for (const Match& match : matches) {
      while (at->first < match.begin) ++at;
      for (; at != block.starts.end() && at->first < match.end; ++at) set[at->second] = true;
    }
  }
  return set;
}

TEST(Unicode, ClassesAreTheReferencesOverAllCharacters) {
  for (const auto& [expression, ranges] : unicode_golden()["classes"].items()) {
    const std::vector<bool> set = accepted(expression);
    std::vector<bool> wanted(set.size());
    for (size_t i = 0; i < ranges.size(); i += 2) {
      for (char32_t c = ranges[i]; c <= ranges[i + 1].get<char32_t>(); ++c)
        wanted[c] = c < 0xD800 || c >= 0xE000;
    }
    std::vector<std::string> wrong;
    for (size_t c = 0; c < set.size(); ++c) {
      if (set[c] != wanted[c]) wrong.push_back(fmt::format("{}U+{:04X}", set[c] ? "+" : "-", c));
    }
    EXPECT_TRUE(wrong.empty())
        << expression << ": " << wrong.size() << " characters, the first "
        << fmt::format("{}", fmt::join(wrong.begin(),
                                       wrong.begin() + std::min<size_t>(8, wrong.size()), " "));
  }
}

TEST(Unicode, TextsWithNewerCharactersAreSplitAsTheReferenceSplitsThem) {
  size_t n = 0;
  for (const auto& [name, entry] : unicode_golden()["splits"].items()) {
    PreTokenizer splitter;
    for (const std::string pattern : entry["patterns"]) {
      auto regex = Regex::compile(pattern);
      ASSERT_TRUE(regex) << regex.error().message;
      splitter.add_split(*std::move(regex), PreTokenizer::Behavior::kIsolated);
    }
    for (const auto& pieces : entry["pieces"]) {
      std::string text;
      for (const std::string piece : pieces) text += piece;
      std::vector<std::string> words;
      splitter.split(text, true, [&](std::string_view word) { words.emplace_back(word); });
      EXPECT_EQ(Json(words), pieces) << name << ": " << text;
      ++n;
    }
  }
  EXPECT_GT(n, 100u);
}

// The other ways to ask for the same.
TEST(Unicode, WordsAndNumbersAreThoseOfExpressions) {
  const std::vector<bool> words = accepted(R"(\w)"), numbers = accepted(R"(\p{N})");
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    EXPECT_EQ(unicode::is_numeric(c), numbers[c]) << std::hex << static_cast<uint32_t>(c);
    // Join_Control is Rust's \w, not Oniguruma's; some numbers of Latin-1 are Oniguruma's.
    if (c == 0x200C || c == 0x200D || (c >= 0xB2 && c <= 0xBE && numbers[c])) continue;
    EXPECT_EQ(unicode::is_word(c), words[c]) << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(Unicode, NewerCharactersAreFoundInTexts) {
  EXPECT_FALSE(unicode::has_newer_characters(""));
  EXPECT_FALSE(unicode::has_newer_characters("plain text of more than eight bytes, ünd 漢字 😀"));
  for (const size_t before : {0, 1, 7, 8, 9}) {
    const std::string text = std::string(before, 'a');
    EXPECT_TRUE(unicode::has_newer_characters(text + "🩷")) << before;
    EXPECT_TRUE(unicode::has_newer_characters(text + "é🩷 b")) << before;
    EXPECT_FALSE(unicode::has_newer_characters(text + "é💙 b")) << before;
  }
  for (const unicode::NewerCharacters& row : unicode::newer_characters()) {
    EXPECT_EQ(unicode::find_newer(row.first), &row);
    EXPECT_EQ(unicode::find_newer(row.last), &row);
  }
}

std::string utf8_of(const std::vector<char32_t>& characters) {
  std::string text;
  for (const char32_t c : characters) unicode::append(text, c);
  return text;
}

// Marks, some of which stand for several, and their combining classes.
struct Mark {
  char32_t code;
  std::vector<std::pair<int, char32_t>> parts;
};
const std::vector<Mark> kMarks = {{0x301, {{230, 0x301}}},
                                  {0x316, {{220, 0x316}}},
                                  {0x327, {{202, 0x327}}},
                                  {0x334, {{1, 0x334}}},
                                  {0x345, {{240, 0x345}}},
                                  {0x344, {{230, 0x308}, {230, 0x301}}},
                                  {0xF73, {{129, 0xF71}, {130, 0xF72}}},
                                  {0x20D2, {{1, 0x20D2}}}};

TEST(Normalization, RunsOfMarksOfAnyLengthAreInOrder) {
  std::mt19937 draw(1);
  for (const size_t n : {1, 10, 63, 64, 65, 66, 200, 1000}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<char32_t> marks;
      std::vector<std::pair<int, char32_t>> parts;
      for (size_t i = 0; i < n; ++i) {
        const Mark& mark = kMarks[draw() % kMarks.size()];
        marks.push_back(mark.code);
        parts.insert(parts.end(), mark.parts.begin(), mark.parts.end());
      }
      std::ranges::stable_sort(parts, {}, [](const auto& part) { return part.first; });
      std::vector<char32_t> sorted;
      for (const auto& [rank, code] : parts) sorted.push_back(code);
      const std::string text = "x q" + utf8_of(marks) + "b" + utf8_of(marks),
                        expected = "x q" + utf8_of(sorted) + "b" + utf8_of(sorted);
      for (const auto form : {unicode::Form::kNfd, unicode::Form::kNfkd})
        ASSERT_EQ(unicode::normalize(text, form), expected) << n;
      for (const auto form : {unicode::Form::kNfc, unicode::Form::kNfkc})
        ASSERT_EQ(unicode::normalize(text, form), unicode::normalize(expected, form)) << n;
    }
  }
  // One of them becomes a part of its letter.
  std::string composed = "\u00e1", text = "a";
  for (int i = 0; i < 100; ++i) text += "\u0301\u0316", composed += "\u0316";
  for (int i = 0; i < 99; ++i) composed += "\u0301";
  EXPECT_EQ(unicode::normalize(text, unicode::Form::kNfc), composed);
}

TEST(Normalization, ManyMarksTakeLinearTime) {
  const auto cpu = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  for (const std::string piece :
       {"\u0301\u0316", "\u0345\u0301\u0316\u0327\u0334", "\uff9e\u0301"}) {
    std::string text = "a";
    while (text.size() < (1 << 20)) text += piece;
    for (const auto form :
         {unicode::Form::kNfc, unicode::Form::kNfd, unicode::Form::kNfkc, unicode::Form::kNfkd}) {
      const double begin = cpu();
      unicode::normalize(text, form);
      EXPECT_LT(cpu() - begin, 2) << piece;
    }
  }
}

}  // namespace
}  // namespace penstock::unicode_test
