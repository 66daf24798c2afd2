// Regular expressions: dialect, meaning, refusals. Expected values follow ECMA-262; Python's re
// agrees on each.
#include "grammar/regex/parser.h"

#include <gmock/gmock.h>

#include "grammar/regex/char_dfa.h"

namespace penstock::grammar {
namespace {

using testing::HasSubstr;

std::u32string wide(std::string_view ascii) { return {ascii.begin(), ascii.end()}; }

Compiled<CharDfa> compile(std::string_view pattern, RegexScope scope) {
  ExprPool pool;
  Budget budget{CompileLimits{}};
  const auto expr = parse_regex(pool, pattern, scope);
  if (!expr) return tl::unexpected(expr.error());
  return make_dfa(pool, *expr, budget);
}

bool matches(std::string_view pattern, std::u32string_view text,
             RegexScope scope = RegexScope::kWhole) {
  const auto dfa = compile(pattern, scope);
  EXPECT_TRUE(dfa) << pattern << ": " << dfa.error().message;
  return dfa && dfa->run(text) != 0;
}
bool matches(std::string_view pattern, std::string_view text,
             RegexScope scope = RegexScope::kWhole) {
  return matches(pattern, wide(text), scope);
}
bool finds(std::string_view pattern, std::string_view text) {
  return matches(pattern, text, RegexScope::kSearch);
}

std::string refusal(std::string_view pattern) {
  const auto dfa = compile(pattern, RegexScope::kWhole);
  return dfa ? "compiled" : std::string(name_of(dfa.error().kind)) + ": " + dfa.error().message;
}

TEST(Regex, WholeTexts) {
  EXPECT_TRUE(matches("a{2,4}", "aaaa"));
  EXPECT_FALSE(matches("a{2,4}", "aaaaa"));
  EXPECT_TRUE(matches("ab(c|)", "ab"));
  EXPECT_TRUE(matches("^$|^https://x\\.com/", "https://x.com/"));
  EXPECT_FALSE(matches("^$|^https://x\\.com/", "https://x.com/a"));
  EXPECT_TRUE(matches("[-a-zA-Z+--]+", "a-+,"));
  EXPECT_TRUE(matches(R"([\r\n\$\u0010-\u006F\]\--]+)", "\r\n$ -"));
  EXPECT_TRUE(matches("(?<name>abc)(?P<other>d)", "abcd"));
  EXPECT_TRUE(matches("[abc]+?abc", "aabc"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_TRUE(matches("a{,", "a{,")) << "a brace that begins no count is one";
  EXPECT_TRUE(matches("(?i)stra(?:SS)e", "STRAsse"));
  EXPECT_FALSE(matches("a(?i:b)c", "abC"));
}

TEST(Regex, SearchesUnlessAnchored) {
  EXPECT_TRUE(finds("b", "abc"));
  EXPECT_FALSE(finds("^b", "abc"));
  EXPECT_TRUE(finds("^a", "abc"));
  EXPECT_TRUE(finds("c$", "abc"));
  EXPECT_FALSE(finds("^(a|b)$", "ab"));
  EXPECT_TRUE(finds("a|^b$", "xax"));
  EXPECT_FALSE(finds("a|^b$", "xb"));
  EXPECT_TRUE(finds("(^|,)b", "a,b"));
  EXPECT_TRUE(finds("(^|,)b", "b"));
  EXPECT_FALSE(finds("(^|,)b", "ab"));
  EXPECT_TRUE(finds("x*^a", "ab")) << "nothing before the anchor";
  EXPECT_FALSE(finds("x+^a", "xa"));
  EXPECT_TRUE(finds("(^a)?b", "cb"));
}

TEST(Regex, Classes) {
  EXPECT_TRUE(matches(R"(\w\w\W\d\D\s\S)", "A_ 1b 0"));
  EXPECT_FALSE(matches(R"(\d)", U"\u0663")) << "digits are ASCII";
  EXPECT_TRUE(matches(R"(\s)", U"\u00A0"));
  EXPECT_FALSE(matches(".", "\n"));
  EXPECT_TRUE(matches(".", U"\U0001F600"));
  EXPECT_TRUE(matches(R"(\p{L}+\p{Nd})", U"Ünï5"));
  EXPECT_TRUE(matches(R"(\P{L})", "5"));
  EXPECT_TRUE(matches(R"(\p{Script=Greek})", U"λ"));
  EXPECT_TRUE(matches(R"(\u{1F600}\uD83D\uDE00)", U"\U0001F600\U0001F600"));
  EXPECT_TRUE(matches(R"([\w-.]+)", "a-."));
  EXPECT_TRUE(matches(R"([^])", "\n"));
  EXPECT_TRUE(matches(R"([\b])", "\b"));
}

TEST(Regex, LookAhead) {
  EXPECT_FALSE(finds("^(?!foo).*$", "foobar"));
  EXPECT_TRUE(finds("^(?!foo).*$", "barfoo"));
  EXPECT_TRUE(finds("^(?=.*[0-9])(?=.*[a-z]).{3,}$", "ab1"));
  EXPECT_FALSE(finds("^(?=.*[0-9])(?=.*[a-z]).{3,}$", "abc"));
  EXPECT_TRUE(matches("a(?=b)b", "ab"));
}

TEST(Regex, Refusals) {
  EXPECT_THAT(refusal("(?<=a)b"),
              HasSubstr("unsupported: regular expression, character 5: look-behind"));
  EXPECT_THAT(refusal(R"((a)\1)"), HasSubstr("unsupported"));
  EXPECT_THAT(refusal(R"(\bword)"), HasSubstr("word boundaries"));
  EXPECT_THAT(refusal("(^a)*"), HasSubstr("inside a repetition"));
  EXPECT_THAT(refusal("a{,3}"), HasSubstr("{0,n}"));
  EXPECT_THAT(refusal("[[:alpha:]]"), HasSubstr("POSIX"));
  EXPECT_THAT(refusal("(a"), HasSubstr("invalid"));
  EXPECT_THAT(refusal("a)"), HasSubstr("invalid"));
  EXPECT_THAT(refusal("*"), HasSubstr("invalid"));
  EXPECT_THAT(refusal("a**"), HasSubstr("invalid"));
  EXPECT_THAT(refusal("[b-a]"), HasSubstr("invalid"));
  EXPECT_THAT(refusal(R"(\p{Nonsense})"), HasSubstr("invalid"));
  EXPECT_THAT(refusal("a{3,2}"), HasSubstr("invalid"));
  EXPECT_THAT(refusal("\xff"), HasSubstr("not UTF-8"));
}

TEST(Regex, HostilePatternsEndInTooLarge) {
  EXPECT_THAT(refusal(std::string(1000, '(')), HasSubstr("too_large"));
  EXPECT_THAT(refusal("(a|b)*a(a|b){40}"), HasSubstr("too_large"));
  EXPECT_THAT(refusal("((a{0,1000}){0,1000}){0,1000}b"), HasSubstr("too_large"));
  EXPECT_THAT(refusal(".{1000000000}"), HasSubstr("too_large"));
  std::string optional;
  for (int i = 0; i < 5000; ++i) optional += "a?";
  EXPECT_THAT(refusal(optional), HasSubstr("too_large"));
  EXPECT_THAT(refusal("((a{1,300}b){1,300}c){1,300}"), HasSubstr("too_large"));
}

}  // namespace
}  // namespace penstock::grammar
