// What a text may cost: long runs, many words, work that is cancelled.
#include <gmock/gmock.h>

#include "base/work.h"
#include "golden_cases.h"
#include "golden_check.h"
#include "text/steps/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode/regex.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

std::vector<std::pair<size_t, size_t>> matches_of(const Regex& regex, std::string_view text) {
  std::vector<std::pair<size_t, size_t>> found;
  regex.for_each(text, [&](Match match) { found.emplace_back(match.begin, match.end); });
  return found;
}

std::vector<std::pair<size_t, size_t>> matches_of(const std::string& pattern,
                                                  std::string_view text) {
  const auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex) << regex.error().message;
  return matches_of(*regex, text);
}

std::string repeated(std::string_view piece, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += piece;
  return text;
}

// Patterns that group digits, and the same ones written so that nothing recognizes them.
TEST(DigitGroups, AreWhatThePatternsSay) {
  const std::pair<const char*, const char*> patterns[] = {
      {"\\d{1,3}(?=(?:\\d{3})*\\b)", "(?:\\d){1,3}(?=(?:\\d{3})*\\b)"},
      {"\\d{1,3}(?=(\\d{3})*\\b)", "(?:\\d){1,3}(?=(\\d{3})*\\b)"},
      {"[0-9]{1,3}(?=(?:[0-9]{3})*\\b)", "(?:[0-9]){1,3}(?=(?:[0-9]{3})*\\b)"},
      {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))", "(?:\\p{N}){1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"},
      {"(?=(\\d{3})+(?!\\d))", "(?=(?:(\\d{3}))+(?!\\d))"},
      {"(?=(?:\\p{Nd}{3})+(?!\\p{Nd}))", "(?=(?:(?:\\p{Nd}{3}))+(?!\\p{Nd}))"}};
  const char* texts[] = {
      "",         "1",         "12",       "123",        "1234",     "1234567 89 x1234",
      "1234x",    "x1234",     "12_345",   "a 1234, b5", "1234567.", "٣٤٥٦٧ ٣٤",
      "1٣2٤5٥67", "½123¼4567", "00000000", "é1234é",     "123\n456", "1 2 3 1234 é 56789"};
  for (const auto& [known, written] : patterns) {
    for (const char* text : texts)
      EXPECT_EQ(matches_of(known, text), matches_of(written, text)) << known << " " << text;
  }
}

TEST(DigitGroups, TakeLinearTime) {  // as written, a run of these takes hours
  constexpr size_t kDigits = 3'000'001;
  const std::string digits(kDigits, '7');
  const auto groups = matches_of("\\d{1,3}(?=(?:\\d{3})*\\b)", digits);
  ASSERT_EQ(groups.size(), (kDigits + 2) / 3);
  EXPECT_EQ(groups[0], std::pair(size_t{0}, size_t{1}));
  EXPECT_EQ(groups.back(), std::pair(kDigits - 3, kDigits));
  EXPECT_TRUE(matches_of("\\d{1,3}(?=(?:\\d{3})*\\b)", digits + "x").empty());
  EXPECT_EQ(matches_of("(?=(\\d{3})+(?!\\d))", digits).size(), kDigits / 3);
}

// A pattern that nobody knows: a few of its costly searches are made, then the work ends with a
// reason.
TEST(Regex, CostlySearchesAreCounted) {
  const auto regex = Regex::compile("x\\d{2}(?=(?:\\d{2})*\\D)|x\\d(?=(?:\\d{2})*z)");
  ASSERT_TRUE(regex) << regex.error().message;
  const std::string text = repeated("x" + std::string(400'000, '1') + "  ", 40);
  Work work;
  const WorkScope scope(work);
  int n_ended = 0;
  for (int i = 0; i < 100 && n_ended == 0; ++i) {
    try {
      (void)matches_of(*regex, text);
    } catch (const WorkEnded& ended) {
      ++n_ended;
      EXPECT_EQ(ended.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(ended.error().message, HasSubstr("long runs of digits"));
    }
  }
  EXPECT_EQ(n_ended, 1);
}

TEST(PreTokenizer, StepsFollowEachOtherWordByWord) {
  PreTokenizer steps =
      PreTokenizer::from_json({{"type", "Digits"}, {"individual_digits", true}}).value();
  steps.add_byte_level(false, true);
  std::vector<std::string> words;
  steps.split("It's 42 cats", true, [&](std::string_view word) { words.emplace_back(word); });
  EXPECT_THAT(words, testing::ElementsAre("It", "'s", " ", "4", "2", " cats"));
}

struct Tiny {
  explicit Tiny(const char* name) {
    auto opened = golden::open_file(golden::folder() / name);
    EXPECT_TRUE(opened) << opened.error().message;
    tokenizer = *std::move(opened);
  }
  std::unique_ptr<Tokenizer> tokenizer;
};

TEST(Encode, IsCancelled) {
  const Tiny tiny("tiny_byte_bpe.json");
  Work work;
  const WorkScope scope(work);
  EXPECT_FALSE(tiny.tokenizer->encode("a b c").empty());
  work.cancel();
  EXPECT_THROW(tiny.tokenizer->encode("a b c"), WorkEnded);
}

// What is held at once is bounded for clients, and for nobody else.
TEST(Encode, AStretchWithoutAPlaceToSplitIsBounded) {
  const Tiny tiny("tiny_byte_bpe.json");
  const std::string text((size_t{1} << 20) + 2, 'a');
  EXPECT_FALSE(tiny.tokenizer->encode(text).empty());
  Work work;
  const WorkScope scope(work);
  EXPECT_FALSE(tiny.tokenizer->encode(repeated("word ", 400'000)).empty());
  try {
    (void)tiny.tokenizer->encode(text);
    FAIL() << "it became tokens";
  } catch (const WorkEnded& ended) {
    EXPECT_EQ(ended.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(ended.error().message, HasSubstr("at most 1048576"));
  }
}

TEST(Encode, ALengthIsKnownFromTheBeginning) {
  const Tiny tiny("tiny_byte_bpe.json");
  EXPECT_EQ(tiny.tokenizer->count_at_least("short", 1), 0u);
  const std::string text = repeated("word ", 1'000'000);
  const size_t all = tiny.tokenizer->encode(text).size();
  const size_t some = tiny.tokenizer->count_at_least(text, 100);
  EXPECT_GT(some, 100u);
  EXPECT_LT(some, all / 10);
  EXPECT_LE(tiny.tokenizer->count_at_least(text, all), all);
}

}  // namespace
}  // namespace penstock
