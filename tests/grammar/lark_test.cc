// Lark's notation: what Lark and llguidance say about the same texts
// (tests/golden/make_lark_cases.py), what stands between terminals, tokens, and what is refused
// where.
#include <gmock/gmock.h>

#include <fstream>

#include "grammar/grammar.h"
#include "grammar/schema/json_value.h"
#include "grammar/syntax/notation.h"
#include "small_vocabulary.h"
#include "support/test_data.h"

namespace penstock::grammar {
namespace {

using testing::HasSubstr;

Compiled<std::shared_ptr<const Grammar>> compile_rules(std::string text,
                                                       const CompileLimits& limits = {}) {
  static const auto vocabulary = small_vocabulary();
  return Grammar::compile({SpecKind::kGrammar, std::move(text), {}}, vocabulary, limits);
}

bool lark_accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.append_bytes(text) && matcher.may_end();
}

bool lark_allows(const std::string& rules, std::string_view text) {
  const auto grammar = compile_rules(rules);
  EXPECT_TRUE(grammar) << rules << ": " << grammar.error().where << ": " << grammar.error().message;
  return grammar && lark_accepts(*grammar, text);
}

std::string lark_refusal(const std::string& rules, const CompileLimits& limits = {}) {
  const auto grammar = compile_rules(rules, limits);
  if (grammar) return "compiled";
  return std::string(name_of(grammar.error().kind)) + " " + grammar.error().where + ": " +
         grammar.error().message;
}

TEST(Lark, AgreesWithLarkAndLlguidance) {
  std::ifstream in(tests_dir() / "golden/grammar/larks.jsonl");
  ASSERT_TRUE(in);
  size_t n = 0;
  for (std::string line; std::getline(in, line); ++n) {
    const auto golden = parse_json(line, 100);
    ASSERT_TRUE(golden);
    const std::string& rules = golden->find("grammar")->string;
    const std::string& verdicts = golden->find("verdicts")->string;
    const auto& texts = golden->find("texts")->members;
    const auto grammar = compile_rules(rules);
    ASSERT_TRUE(grammar) << rules << ": " << grammar.error().where << ": "
                         << grammar.error().message;
    ASSERT_EQ(texts.size(), verdicts.size());
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(lark_accepts(*grammar, texts[i].value.string), verdicts[i] == '1')
          << rules << "\n"
          << texts[i].value.text();
  }
  EXPECT_GT(n, 50U);
}

TEST(Lark, IsToldFromEbnf) {
  for (const char* lark : {"start: \"a\"", "\n# x\n// y\n?start : b", "%ignore \" \"\n", "a.2: b",
                           "t{x}: x", "a[lazy]: b"})
    EXPECT_TRUE(is_lark(lark)) << lark;
  for (const char* other :
       {"root ::= \"a\"", "# start: x\nroot ::= a", "", "root", "root = a", "\"a\": b", "{}"})
    EXPECT_FALSE(is_lark(other)) << other;
}

TEST(Lark, IgnoredStandsBetweenTerminalsOnly) {
  const std::string rules = "start: a? b*\na: \"a\" \"x\"?\nb: c+\nc: \"b\"\n%ignore \" \"";
  for (const char* text : {"", "a", "a b", "ab", "a x  b b", "b   b"})
    EXPECT_TRUE(lark_allows(rules, text)) << text;
  for (const char* text : {" ", " a", "a ", "a b ", " b", " ax"})
    EXPECT_FALSE(lark_allows(rules, text)) << text;
  EXPECT_FALSE(lark_allows("start: AB\nAB: \"a\" \"b\"\n%ignore \" \"", "a b"));
}

TEST(Lark, TakesSpecialTokens) {
  const auto grammar = compile_rules("start: \"a\" <|call|> <[257,256-257]>\n%ignore \" \"");
  ASSERT_TRUE(grammar);
  Matcher matcher(*grammar);
  EXPECT_TRUE(matcher.append_bytes("a "));
  EXPECT_TRUE(matcher.append(kCall));
  EXPECT_FALSE(matcher.append('1'));
  EXPECT_TRUE(matcher.append(kCall));
  EXPECT_TRUE(matcher.may_end());
}

TEST(Lark, StandsInStructuralTags) {
  const auto grammar = Grammar::compile(
      {SpecKind::kStructuralTag,
       R"({"type": "structural_tag", "format": {"type": "tag", "begin": "<", "content": {"type": "grammar", "grammar": "start: %json {\"type\": \"integer\"} | \"a\"+"}, "end": ">"}})",
       {}},
      small_vocabulary());
  ASSERT_TRUE(grammar) << grammar.error().message;
  EXPECT_TRUE(lark_accepts(*grammar, "<12>"));
  EXPECT_TRUE(lark_accepts(*grammar, "<aa>"));
  EXPECT_FALSE(lark_accepts(*grammar, "<>"));
}

TEST(Lark, RefusesWhatItDoesNotHonour) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"start: a", "invalid line 1, column 8: the rule \"a\" is not defined"},
      {"a: \"x\"", "no rule \"start\""},
      {"start: \"x\n", "invalid line 1, column 10: a string without"},
      {"start: \"x\"\n \"y\"", "invalid line 2, column 2: expected a definition"},
      {"start: \"x\" )", "unexpected \")\""},
      {"start: (\"x\"", "expected \")\""},
      {"start: 'x'", "double quotes"},
      {"start: A\nA: \"x\" B\nB: A", "invalid line 1, column 8: the terminal \"A\" uses itself"},
      {"start: A\nA: a\na: \"x\"", "the rule \"a\" in a terminal"},
      {"start: A\nA: <|call|>", "special tokens are not allowed in terminals"},
      {"start: Ab\nAb: \"x\"", "lower case"},
      {"start: \"a\"\nstart: \"b\"", "defined twice"},
      {"start: \"a\"*?", "repetition of a repetition"},
      {"start: \"a\" ~ 3..2", "least is more than its most"},
      {"start: \"ab\"..\"c\"", "a range goes from one character"},
      {"start: \"\\d\"", "unknown escape"},
      {"start: \"a\"\nx[max_tokens=3]: \"a\"", "unsupported line 2, column 2: attributes of rules"},
      {"start: /a*?b/", "unsupported line 1, column 8: regular expression, character 4: lazy"},
      {"start: /^a/", "an anchor in a terminal"},
      {"start: /(?!a)b/", "look-ahead"},
      {"start: /(?<!a)b/", "look-behind"},
      {"start: /[a&&b]/", "in a class"},
      {"start: /\\012/", "octal"},
      {"start: /a/l", "the flag \"l\""},
      {"start: \"a\" & \"b\"", "unsupported line 1, column 12"},
      {"start: @other", "other grammars"},
      {"start: <[48]>", "<[48]> is no special token"},
      {"start: <[257-256]>", "no special token"},
      {"start: <[*]>", "all tokens but some"},
      {"start: t{\"a\"}\nt{x, y}: x", "no template \"t\" of 1 parameters"},
      {"start: t{(\"a\")}\nt{x}: x", "a template's argument"},
      {"%import python.NAME\nstart: NAME", "only the module common"},
      {"%import common._STRING_INNER\nstart: _STRING_INNER", "common has no terminal"},
      {"%declare X\nstart: X", "unsupported line 1, column 10: %declare is not supported"},
      {"%llguidance {\"no_forcing\": true}\nstart: \"a\"", "no option"},
      {"start: %regex {\"substring_words\": \"a b\"}", "only %json"},
      {"start: %json {\"type\": \"integer\", \"not\": {\"multipleOf\": 2, \"minimum\": 1}, "
       "\"minLenght\": 1}",
       "%json, #"},
      {"start: %json {\"type\":", "%json, line 1"},
      {"start: \"a\"\nb ::= \"c\"", "expected \":\" behind the name"},
      {"root: \"a\"", "no rule \"start\""},
      {"start = \"a\"", "invalid line 1, column 1: expected a rule"},
  };
  for (const auto& [rules, told] : kRefused)
    EXPECT_THAT(lark_refusal(rules), HasSubstr(told)) << rules;
}

TEST(Lark, IsBounded) {
  const std::string deep(100'000, '(');
  EXPECT_THAT(lark_refusal("start: " + deep), HasSubstr("too_large"));
  EXPECT_THAT(lark_refusal("start: t{\"a\"}\nt{x}: t{u{x}}\nu{x}: x"), HasSubstr("too_large"));
  std::string nested = "x";
  for (int i = 0; i < 1000; ++i) nested = "t{" + nested + "}";
  EXPECT_THAT(lark_refusal("start: " + nested + "\nt{x}: x\nx: \"a\""), HasSubstr("too_large"));
  std::string optional = "start:";
  for (int i = 0; i < 20'000; ++i) optional += " [a b]";
  EXPECT_NE(lark_refusal(optional +
                         "\na: \"a\" | \"(\" a \")\"\nb: \"b\" | \"[\" b \"]\"\n%ignore \" \""),
            "");
}

// A grammar whose texts stand inside of a JSON string, with what must be escaped there.
TEST(Lark, InsideOfAJsonString) {
  const auto tag_with = [](const std::string& rules) {
    const std::string tag =
        R"({"type": "structural_tag", "format": {"type": "sequence", "elements": [{"type": "const_string", "value": "{\"input\": \""}, {"type": "grammar", "in_string": true, "grammar": )" +
        rules + R"(}, {"type": "const_string", "value": "\"}"}]}})";
    return Grammar::compile({SpecKind::kStructuralTag, tag}, small_vocabulary());
  };
  // Balanced brackets around lines, quotation marks and backslashes.
  const auto grammar = tag_with(R"("start: \"[\" (start | /[a-c\"\\\\\\né]/)* \"]\"")");
  ASSERT_TRUE(grammar) << grammar.error().message;
  for (const char* text : {R"({"input": "[]"})", R"({"input": "[a[b\n]é]"})",
                           R"({"input": "[\"\\\"]"})", R"({"input": "[\u000a]"})"})
    EXPECT_TRUE(lark_accepts(*grammar, text)) << text;
  for (const char* text : {R"({"input": "[a"})", R"({"input": "["]"})", R"({"input": "[\]"})",
                           R"({"input": "[\t]"})", R"({"input": "[d]"})", "{\"input\": \"[\n]\"}"})
    EXPECT_FALSE(lark_accepts(*grammar, text)) << text;
  Matcher matcher(*grammar);
  EXPECT_TRUE(matcher.append_bytes(R"({"input": "[])"));
  std::string forced;
  matcher.forced_bytes(forced);
  EXPECT_EQ(forced, "\"}");
  for (const char* rules : {R"("start: %json {}")", R"("start: <|call|>")"}) {
    const auto refused = tag_with(rules);
    ASSERT_FALSE(refused) << rules;
    EXPECT_EQ(refused.error().kind, RefusalKind::kUnsupported);
    EXPECT_THAT(refused.error().message, HasSubstr("inside of a JSON string"));
  }
}

}  // namespace
}  // namespace penstock::grammar
