// Automata over bytes: spellings of strings, sets of numbers, literals, counts.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "grammar/lexer/completion_lengths.h"
#include "grammar/lexer/lexeme.h"
#include "grammar/lexer/number_dfa.h"
#include "grammar/lexer/spelling.h"
#include "grammar/regex/parser.h"

namespace penstock::grammar {
namespace {

ByteDfa spelled(std::string_view pattern, Spelling spelling) {
  ExprPool pool;
  Budget budget{CompileLimits{}};
  const auto chars = make_dfa(pool, parse_regex(pool, pattern, RegexScope::kWhole).value(), budget);
  return spell(chars.value(), spelling, budget).value();
}
bool accepts(const ByteDfa& dfa, std::string_view text) {
  return dfa.tag(dfa.run(dfa.start(), text)) != 0;
}

TEST(Spelling, Utf8) {
  const ByteDfa any = spelled("(?s).", Spelling::kUtf8);
  for (const char* text :
       {"a", "\x7f", "é", "€", "\U0001F600", "\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(accepts(any, text)) << text;
  }
  for (const char* text : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                           "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3"}) {
    EXPECT_FALSE(accepts(any, text));
  }
  const ByteDfa greek = spelled("[α-ω]+x", Spelling::kUtf8);
  EXPECT_TRUE(accepts(greek, "λόγοσx") == false && accepts(greek, "λωx"));
}

TEST(Spelling, JsonStrings) {
  const ByteDfa any = spelled("(?s).*", Spelling::kJson);
  for (const char* text :
       {"\"", "abc\"", R"(\"\\\/\b\f\n\r\t")", R"(\u0000\u001F")", "é\U0001F600\x7f\""}) {
    EXPECT_TRUE(accepts(any, text)) << text;
  }
  for (const char* text :
       {"", "abc", "\n\"", R"(\x")", R"(\u0041")", R"(\")", "a\"b", R"(\ud800")"}) {
    EXPECT_FALSE(accepts(any, text)) << text;
  }
  const ByteDfa newline = spelled("a\\nb", Spelling::kJson);
  EXPECT_TRUE(accepts(newline, R"(a\nb")")) << "patterns see what is escaped";
  EXPECT_TRUE(accepts(newline, R"(a\u000Ab")"));
  EXPECT_FALSE(accepts(newline, R"(anb")"));
}

TEST(Spelling, AllEscapes) {
  const ByteDfa dfa = spelled("[aé€\\u{1F600}]*", Spelling::kJsonAllEscapes);
  EXPECT_TRUE(accepts(dfa, R"(\u0061\u00E9\u20aca\uD83D\uDE00\ud83d\ude00")"));
  for (const char* text :
       {R"(\ud83d")", R"(\ude00")", R"(\ud83d\ud83d")", R"(\u0062")", R"(\ud83d\ude01")"}) {
    EXPECT_FALSE(accepts(dfa, text)) << text;
  }
}

TEST(Spelling, CanonicalHasOneSpelling) {
  const ByteDfa any = spelled("(?s).*", Spelling::kJsonCanonical);
  const std::string content = std::string("a/\"\\\b\f\n\r\t\x01\x1f", 11) + "é";
  EXPECT_TRUE(accepts(any, canonical_json(content) + "\""));
  for (const char* text : {R"(\/")", R"(\u000a")", R"(\u001F")", R"(\u0008")"})
    EXPECT_FALSE(accepts(any, text)) << text;
}

TEST(Literals, TagOfEach) {
  const ByteDfa dfa = make_literal_dfa({{"ab", 1}, {"abc", 2}, {"b", 3}, {"ab", 4}});
  EXPECT_EQ(dfa.tag(dfa.run(dfa.start(), "ab")), 1U);
  EXPECT_EQ(dfa.tag(dfa.run(dfa.start(), "abc")), 2U);
  EXPECT_EQ(dfa.tag(dfa.run(dfa.start(), "b")), 3U);
  EXPECT_EQ(dfa.tag(dfa.run(dfa.start(), "a")), 0U);
  EXPECT_EQ(dfa.run(dfa.start(), "c"), ByteDfa::kDead);
}

TEST(Lexemes, CountWords) {
  Lexeme three;
  three.dfa = make_literal_dfa({{"ab", 1}, {"abc", 2}, {"b", 3}});
  EXPECT_TRUE(three.has_more_words(2));
  EXPECT_FALSE(three.has_more_words(3));
  Lexeme endless;
  endless.dfa = spelled("a*b", Spelling::kUtf8);
  EXPECT_TRUE(endless.has_more_words(1000));
  // Of two characters at most: "", 'a' and so on, but each a single spelling.
  const Lexeme& any = *CommonLexemes::get().canonical_string;
  EXPECT_TRUE(any.has_more_words(any.start(), 0, {0, 1}, 1'000'000));
  EXPECT_FALSE(any.has_more_words(any.start(), 0, {0, 0}, 1));
}

Decimal number(std::string_view text) { return Decimal::parse(text).value(); }
NumberBound closed(std::string_view text) { return {number(text), false}; }
NumberBound open(std::string_view text) { return {number(text), true}; }

ByteDfa numbers(const NumberPiece& piece, NumberSpelling spelling = NumberSpelling::kAny) {
  Budget budget{CompileLimits{}};
  auto dfa = make_number_dfa({&piece, 1}, spelling, budget);
  EXPECT_TRUE(dfa) << dfa.error().message;
  return dfa ? *std::move(dfa) : ByteDfa();
}

TEST(Decimals, ParseCompareText) {
  EXPECT_EQ(number("1.0"), number("1"));
  EXPECT_EQ(number("-0"), number("0.00"));
  EXPECT_EQ(number("1e3"), number("1000"));
  EXPECT_LT(number("-1e400"), number("-1e399"));
  EXPECT_LT(number("0.1"), number("0.10000000000000000001"));
  EXPECT_EQ(number("12.50").text(), "12.5");
  EXPECT_EQ(number("-0.001").text(), "-0.001");
  EXPECT_EQ(number("1e400").text(), "1e400");
  EXPECT_FALSE(Decimal::parse("1e999999999999"));
  EXPECT_FALSE(Decimal::parse("1."));
  EXPECT_FALSE(Decimal::parse("x"));
}

TEST(Numbers, Free) {
  const ByteDfa dfa = numbers({});
  for (const char* text :
       {"0", "-0", "12", "-1.5", "1e5", "1E-07", "0.0e+1", "123456789012345678901234567890"})
    EXPECT_TRUE(accepts(dfa, text)) << text;
  for (const char* text : {"", "-", "01", "1.", ".5", "+1", "1e", "1e+", "--1", "1.5.5"})
    EXPECT_FALSE(accepts(dfa, text)) << text;
}

// Every number with at most `digits` digits and two decimals is accepted exactly when the piece
// contains it.
void check_all(const NumberPiece& piece, int from, int to) {
  const ByteDfa dfa = numbers(piece);
  for (int hundredths = from * 100; hundredths <= to * 100; ++hundredths) {
    std::string text = (hundredths < 0 ? "-" : "") + std::to_string(std::abs(hundredths) / 100);
    const int fraction = std::abs(hundredths) % 100;
    if (fraction != 0)
      text += fraction % 10 == 0 ? "." + std::to_string(fraction / 10)
                                 : fmt::format(".{:02}", fraction);
    EXPECT_EQ(accepts(dfa, text), piece.contains(number(text))) << text;
  }
}

TEST(Numbers, AgreeWithArithmetic) {
  check_all({.low = closed("3"), .high = closed("117")}, -20, 130);
  check_all({.low = open("3"), .high = open("117")}, -20, 130);
  check_all({.low = closed("-12.5"), .high = open("7.25")}, -30, 30);
  check_all({.low = open("-0.75"), .high = closed("-0.25")}, -3, 3);
  check_all({.low = closed("0"), .high = closed("0")}, -2, 2);
  check_all({.low = open("0")}, -2, 12);
  check_all({.high = open("-9.9")}, -120, 10);
  check_all({.low = closed("99"), .high = closed("101")}, 80, 120);
  check_all({.multiples_of = {number("7")}}, -50, 50);
  check_all({.low = closed("1"), .multiples_of = {number("0.25")}}, -5, 20);
  check_all({.multiples_of = {number("1.5")}, .not_multiples_of = {number("2")}}, -20, 20);
  check_all({.not_multiples_of = {number("1")}}, -12, 12);
  check_all(
      {.low = closed("10"), .high = closed("20"), .multiples_of = {1, 4}, .not_multiples_of = {3}},
      0, 30);
}

TEST(Numbers, Spellings) {
  const ByteDfa whole = numbers({.multiples_of = {1}});
  EXPECT_TRUE(accepts(whole, "5.0"));
  EXPECT_FALSE(accepts(whole, "5.00"));
  EXPECT_FALSE(accepts(whole, "-0"));
  EXPECT_FALSE(accepts(whole, "5e1"));
  EXPECT_FALSE(accepts(numbers({.multiples_of = {1}, .digits_only = true}), "5.0"));
  const ByteDfa positive = numbers({.low = open("0")});
  EXPECT_TRUE(accepts(positive, "1e-05"));
  EXPECT_FALSE(accepts(positive, "0e5"));
  EXPECT_TRUE(accepts(numbers({.low = closed("0"), .high = closed("0")}), "0e5"));
  EXPECT_FALSE(accepts(numbers({.low = closed("0"), .high = closed("0")}), "2e5"));
  EXPECT_FALSE(accepts(positive, "1e-400")) << "zero to a double";
  EXPECT_FALSE(accepts(positive, "-1e5"));
  EXPECT_FALSE(accepts(numbers({.high = open("1")}), "0.9999999999999999999")) << "one to a double";
  EXPECT_TRUE(accepts(numbers({.high = closed("1")}), "0.9999999999999999999"));
  const ByteDfa canonical = numbers({}, NumberSpelling::kCanonical);
  for (const char* text : {"1.0", "1e1", "-0", "1.50"})
    EXPECT_FALSE(accepts(canonical, text)) << text;
  for (const char* text : {"1", "0", "-1.5", "0.05"}) EXPECT_TRUE(accepts(canonical, text)) << text;
}

TEST(Numbers, NoDeadEnds) {
  // 15 is the only multiple of 15 there is: "2" leads nowhere.
  const ByteDfa dfa = numbers({.low = closed("10"), .high = closed("25"), .multiples_of = {15}});
  EXPECT_TRUE(accepts(dfa, "15"));
  EXPECT_EQ(dfa.run(dfa.start(), "2"), ByteDfa::kDead);
  EXPECT_EQ(numbers({.low = closed("1"), .high = closed("2"), .multiples_of = {5}}).start(),
            ByteDfa::kDead);
}

TEST(Numbers, LargeBounds) {
  const ByteDfa dfa = numbers({.low = closed("-9223372036854775808"),
                               .high = closed("9223372036854775807"),
                               .multiples_of = {1}});
  EXPECT_TRUE(accepts(dfa, "9223372036854775807"));
  EXPECT_FALSE(accepts(dfa, "9223372036854775808"));
  EXPECT_TRUE(accepts(dfa, "-9223372036854775808"));
  EXPECT_FALSE(accepts(dfa, "-9223372036854775809"));
}

TEST(CompletionLengths, PeriodicSets) {
  // 0 -> 1 -> 0, accepting in 0: even numbers of steps from 0, odd ones from 1.
  Budget budget{CompileLimits{}};
  const auto lengths =
      CompletionLengths::of({.successors = {{1}, {0}}, .accepts = {true, false}}, budget).value();
  EXPECT_TRUE(lengths.any_within(0, {0, 0}));
  EXPECT_FALSE(lengths.any_within(0, {1, 1}));
  EXPECT_TRUE(lengths.any_within(1, {1'000'000'001, 1'000'000'001}));
  EXPECT_FALSE(lengths.any_within(1, {1'000'000'000, 1'000'000'000}));
  EXPECT_TRUE(lengths.any_within(1, {1'000'000'000, kNoLimit}));
}

}  // namespace
}  // namespace penstock::grammar
