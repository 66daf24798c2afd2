// JSON schemas: what jsonschema says about the same texts (tests/golden/make_grammar_cases.py),
// order, refusals and notes.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include <fstream>

#include "grammar/grammar.h"
#include "grammar/schema/json_value.h"
#include "small_vocabulary.h"
#include "support/test_data.h"

namespace penstock::grammar {
namespace {

using testing::HasSubstr;

Compiled<std::shared_ptr<const Grammar>> compile_spec(SpecKind kind, std::string text,
                                                      const JsonStyle& style = {}) {
  static const auto vocabulary = small_vocabulary();
  return Grammar::compile({kind, std::move(text), style}, vocabulary);
}

bool allows(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.append_bytes(text) && matcher.may_end();
}

bool allows(const std::string& schema, std::string_view text, const JsonStyle& style = {}) {
  const auto grammar = compile_spec(SpecKind::kJsonSchema, schema, style);
  EXPECT_TRUE(grammar) << schema << ": " << grammar.error().message;
  return grammar && allows(*grammar, text);
}

std::string schema_refusal(const std::string& schema) {
  const auto grammar = compile_spec(SpecKind::kJsonSchema, schema);
  if (grammar) return "compiled";
  return std::string(name_of(grammar.error().kind)) + " " + grammar.error().where + ": " +
         grammar.error().message;
}

std::vector<std::string> lines_of(const char* file) {
  std::ifstream in(tests_dir() / "golden/grammar" / file);
  EXPECT_TRUE(in) << file;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Values count by what they are, beside members that list none.
TEST(Schemas, OneOfIsOneAlone) {
  const std::string values =
      R"({"oneOf":[{"enum":[1,"a",{"x":1,"y":2},7]},{"const":1.0},{"const":"b"},{"type":"string","minLength":3},)"
      R"({"const":{"y":2,"x":1}},{"type":"integer","const":8},{"enum":["long","b"],"type":"string"}]})";
  for (const char* text : {R"("a")", R"("abcd")", "7", "8"})
    EXPECT_TRUE(allows(values, text)) << text;
  for (const char* text :
       {"1", R"("b")", R"("long")", R"({"x":1,"y":2})", R"({"y":2,"x":1})", "2", R"("x")"})
    EXPECT_FALSE(allows(values, text)) << text;
  const auto told_apart = [](const char* first, const char* second) {
    return fmt::format(R"({{"type":"object","oneOf":[{{"properties":{{"a":{{"const":1}}{0}}}}},)"
                       R"({{"properties":{{"a":{{"const":2}}}}{1}}}]}})",
                       first, second);
  };
  for (const std::string& schema : {told_apart("", ""), told_apart("", R"(,"required":["a"])"),
                                    told_apart(R"(,"b":{"const":5})", "")}) {
    for (const char* text : {R"({"a":1})", R"({"a":2})"})
      EXPECT_TRUE(allows(schema, text)) << schema << text;
    EXPECT_FALSE(allows(schema, R"({"a":3})")) << schema;
  }
  EXPECT_FALSE(allows(told_apart("", ""), "{}"));
  EXPECT_TRUE(allows(told_apart("", R"(,"required":["a"])"), "{}"));
  EXPECT_TRUE(allows(told_apart(R"(,"b":{"const":5})", ""), R"({"b":6})"));  // only of the second
  EXPECT_FALSE(allows(told_apart(R"(,"b":{"const":5})", ""), R"({"b":5})"));
}

TEST(Schemas, AgreeWithJsonschema) {
  const auto lines = lines_of("schemas.jsonl");
  ASSERT_GT(lines.size(), 90U);
  const auto texts = parse_json(lines.front(), 100);
  ASSERT_TRUE(texts);
  for (size_t i = 1; i < lines.size(); ++i) {
    const auto line = parse_json(lines[i], 100);
    ASSERT_TRUE(line);
    const std::string schema = line->find("schema")->text();
    const auto grammar = compile_spec(SpecKind::kJsonSchema, schema);
    ASSERT_TRUE(grammar) << schema << ": " << grammar.error().message;
    const std::string& verdicts = line->find("verdicts")->string;
    for (size_t t = 0; t < verdicts.size(); ++t) {
      const std::string& text = texts->members[t].value.string;
      EXPECT_EQ(allows(*grammar, text), verdicts[t] == '1') << schema << "\n" << text;
    }
  }
}

TEST(Regexes, AgreeWithPython) {
  for (const std::string& row : lines_of("regexes.jsonl")) {
    const auto line = parse_json(row, 100);
    ASSERT_TRUE(line);
    const std::string& pattern = line->find("pattern")->string;
    const auto whole = compile_spec(SpecKind::kRegex, pattern);
    const auto found =
        compile_spec(SpecKind::kJsonSchema,
                     "{\"type\":\"string\",\"pattern\":" + line->find("pattern")->text() + "}");
    ASSERT_TRUE(whole && found) << pattern;
    const auto& texts = line->find("texts")->members;
    for (size_t t = 0; t < texts.size(); ++t) {
      EXPECT_EQ(allows(*whole, texts[t].value.string), line->find("whole")->string[t] == '1')
          << pattern << " " << texts[t].value.string;
      EXPECT_EQ(allows(*found, texts[t].value.text()), line->find("found")->string[t] == '1')
          << pattern << " " << texts[t].value.string;
    }
  }
}

TEST(Schemas, MembersKeepTheOrderOfProperties) {
  const std::string schema =
      R"({"properties":{"b":{},"a":{}},"required":["z","a"],"type":"object"})";
  EXPECT_TRUE(allows(schema, R"({"b":1,"a":2,"z":3,"other":4})"));
  EXPECT_TRUE(allows(schema, R"({"a":2,"z":3})"));
  EXPECT_TRUE(allows(schema, R"({"z":3,"b":1,"a":2})"));
  EXPECT_FALSE(allows(schema, R"({"a":2,"b":1,"z":3})"));
  EXPECT_FALSE(allows(schema, R"({"other":4,"a":2,"z":3})"));
  EXPECT_FALSE(allows(schema, R"({"a":2})"));
  EXPECT_FALSE(allows(schema, R"({"a":2,"z":3,"z":4})"));
  EXPECT_FALSE(allows(schema, R"({"a":2,"z":3,"o":4,"o":5})"));
}

TEST(Schemas, ListsOfPropertiesComeInAnyOrder) {
  const std::string schema =
      R"({"type":"object","allOf":[{"properties":{"bar":{"type":"integer"}},"required":["bar"]},{"properties":{"foo":{"type":"string"}}}]})";
  EXPECT_TRUE(allows(schema, R"({"foo":"baz","bar":2})"));
  EXPECT_TRUE(allows(schema, R"({"bar":2,"foo":"baz"})"));
  EXPECT_FALSE(allows(schema, R"({"foo":"baz"})"));
}

TEST(Schemas, StringsAreWhatTheyDecodeTo) {
  EXPECT_TRUE(allows(R"({"type":"string","maxLength":1})", R"("\n")"));
  EXPECT_TRUE(allows(R"({"type":"string","maxLength":1})", R"("\u0007")"));
  EXPECT_TRUE(allows(R"({"enum":["a/b"]})", R"("a\/b")"));
  EXPECT_FALSE(allows(R"({"type":"string"})", "\"a\nb\""));
  EXPECT_FALSE(allows(R"({"type":"string"})", R"("\ud800")"));
  EXPECT_TRUE(allows(R"({"const":"a"})", R"("\u0061")", {.all_escapes = true}));
  EXPECT_TRUE(allows(R"({"type":"string","minLength":1,"maxLength":1})", R"("\ud83d\ude00")",
                     {.all_escapes = true}));
}

TEST(Schemas, NumbersAreEqualByValue) {
  EXPECT_TRUE(allows(R"({"const":1})", "1.0"));
  EXPECT_FALSE(allows(R"({"const":1})", "1.00"));
  for (const char* text : {"0.0000001", "1e-7", "1e-07", "1E-7"})
    EXPECT_TRUE(allows(R"({"const":1e-7})", text)) << text;
  for (const char* text : {"1.5e300", "1.5e+300"})
    EXPECT_TRUE(allows(R"({"const":15e299})", text)) << text;
  EXPECT_TRUE(allows(R"({"enum":[1,-12e20]})", "-1.2e+21"));
  EXPECT_TRUE(allows(R"({"const":0})", "-0.0"));
  EXPECT_FALSE(allows(R"({"const":1e-7})", "1e-8"));
  EXPECT_FALSE(allows(R"({"const":123456789012345678901})", "1.23456789012345678901e20"));
  EXPECT_FALSE(allows(R"({"const":1e20})", "1e+21"));
  EXPECT_FALSE(
      allows(R"({"const":12345678901234567})", "1.2345678901234567e16"));  // a double is ...568
  EXPECT_FALSE(allows(R"({"const":1234567890123456700})", "1.2345678901234567e18"));
  EXPECT_TRUE(allows(R"({"const":12345678901234568})", "1.2345678901234568e16"));
  EXPECT_TRUE(allows(R"({"const":10000000000000000})", "1e+16"));
  EXPECT_TRUE(allows(R"({"enum":[0]})", "0e3"));
  EXPECT_FALSE(allows(R"({"enum":[0]})", "2e3"));
  EXPECT_TRUE(allows(R"({"exclusiveMinimum":0})", "0.5e3"));
  EXPECT_TRUE(allows(R"({"type":"integer"})", "-12.0"));
  EXPECT_FALSE(
      allows(R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"integer"})", "1.0"));
  EXPECT_TRUE(allows(R"({"type":"integer","maximum":1e30})", "1000000000000000000000000000000"));
  EXPECT_FALSE(allows(R"({"type":"integer","maximum":1e30})", "1000000000000000000000000000001"));
}

TEST(Schemas, Styles) {
  EXPECT_FALSE(allows("true", "[1, 2]", {.whitespace = WhiteSpace::kNone}));
  EXPECT_TRUE(allows("true", "[1,2]", {.whitespace = WhiteSpace::kNone}));
  EXPECT_TRUE(allows("true", "[1,  2]", {.whitespace_pattern = " {0,2}"}));
  EXPECT_FALSE(allows("true", "[1,\n2]", {.whitespace_pattern = " {0,2}"}));
}

TEST(Schemas, OneLine) {
  const JsonStyle line{.whitespace = WhiteSpace::kOneLine};
  const std::string schema =
      R"({"type":"object","properties":{"a":{"items":{"type":"integer"}},"b":{"uniqueItems":true,"items":{"enum":["x","y"]}}}})";
  for (const char* text :
       {R"({})", R"({"a": [1, 2], "b": ["x", "y"], "c": {"d": [], "e": {}}})",
        R"({"a":[1,2],"b":["x","y"],"c":{"d":[[],{}]}})", R"({"a": [1,2],"b":["x", "y"]})"})
    EXPECT_TRUE(allows(schema, text, line)) << text;
  for (const char* text :
       {R"({ })", R"({ "a":[]})", R"({"a" :[]})", R"({"a":  []})", R"({"a":[ ]})", R"({"a":[ 1]})",
        R"({"a":[1 ]})", R"({"a":[1] })", R"({"a":[1 ,2]})", R"({"a":[1,  2]})",
        R"({"b":["x",  "y"]})", R"({"b":["x" ]})", "{\"a\":\n[]}", "{\"a\":[1,\n2]}", R"( {})"})
    EXPECT_FALSE(allows(schema, text, line)) << text;
  EXPECT_TRUE(
      allows(schema, "{ }", {.whitespace = WhiteSpace::kOneLine, .whitespace_pattern = " ?"}));
}

TEST(Schemas, RefusalsNameThePlace) {
  EXPECT_THAT(schema_refusal(R"({"properties":{"a":{"minLenght":3}}})"),
              HasSubstr("invalid #/properties/a/minLenght: minLenght: "));
  EXPECT_THAT(schema_refusal(R"({"items":{"$ref":"http://example.com/x"}})"),
              HasSubstr("unsupported #/items/$ref"));
  EXPECT_THAT(schema_refusal(R"({"$schema":"http://example.com/own"})"),
              HasSubstr("unsupported #/$schema"));
  EXPECT_THAT(schema_refusal(R"({"properties":{"a":{"pattern":"(a)\\1"}}})"),
              HasSubstr("unsupported #/properties/a/pattern"));
  EXPECT_THAT(schema_refusal(R"({"type":"strin"})"), HasSubstr("invalid #/type"));
  EXPECT_THAT(schema_refusal(R"({"uniqueItems":true,"items":{"type":"object"}})"),
              HasSubstr("uniqueItems"));
  EXPECT_THAT(schema_refusal(R"({"$ref":"#/nowhere"})"), HasSubstr("#/$ref"));
  EXPECT_THAT(schema_refusal("false"), HasSubstr("no value fulfils the schema"));
  EXPECT_THAT(
      schema_refusal(R"({"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}})"),
      HasSubstr("no value fulfils"));
  EXPECT_THAT(schema_refusal("{"), HasSubstr("line 1"));
}

TEST(Schemas, WhatIsNotEnforcedIsNoted) {
  const auto grammar = compile_spec(
      SpecKind::kJsonSchema, R"({"x-order":1,"type":"string","format":"my-format","_format":"x"})");
  ASSERT_TRUE(grammar);
  std::string notes;
  for (const Note& note : (*grammar)->notes()) notes += note.where + "\n";
  EXPECT_EQ(notes, "#/x-order\n#/format\n#/_format\n");
}

TEST(Schemas, LargeCountsCostWhatSmallOnesDo) {
  EXPECT_TRUE(allows(
      R"({"type":"array","minItems":2,"maxItems":1000000000000,"items":{"type":"string","maxLength":4000000000}})",
      R"(["a","b"])"));
  EXPECT_FALSE(allows(R"({"type":"string","minLength":1000000000})", R"("abc")"));
}

TEST(Schemas, HostileOnesAreRefusedOrCompiled) {
  std::string deep, all;
  for (int i = 0; i < 5000; ++i) deep += R"({"items":)";
  EXPECT_THAT(schema_refusal(deep), HasSubstr("too_large"));
  for (int i = 0; i < 40; ++i)
    all +=
        (i == 0 ? "" : ",") +
        fmt::format(
            R"({{"anyOf":[{{"required":["a{0}"],"properties":{{"a{0}":{{"const":{0}}}}}}},{{"minProperties":{0}}}]}})",
            i);
  EXPECT_THAT(schema_refusal("{\"type\":\"object\",\"allOf\":[" + all + "]}"),
              testing::AnyOf(HasSubstr("too_large"), HasSubstr("compiled")));
  std::string chain;
  for (int i = 0; i < 3000; ++i)
    chain += fmt::format(R"("d{}":{{"$ref":"#/$defs/d{}"}},)", i, i + 1);
  EXPECT_THAT(schema_refusal("{\"$ref\":\"#/$defs/d0\",\"$defs\":{" + chain + "\"d3000\":{}}}"),
              testing::AnyOf(HasSubstr("too_large"), HasSubstr("compiled")));
}

TEST(Schemas, MembersInAnyOrder) {
  const std::string schema =
      R"({"properties":{"a":{"type":"integer"},"b":{"type":"null"},"c":{"enum":[{"x":1,"y":2,"z":3,"u":4}]}},"required":["b"],"dependentRequired":{"c":["a"]},"additionalProperties":{"type":"boolean"}})";
  const JsonStyle any{.any_member_order = true};
  for (const char* text :
       {R"({"a":1,"b":null})", R"({"b":null,"a":1})", R"({"z":true,"b":null,"a":1,"y":false})",
        R"({"c":{"u":4,"x":1,"z":3,"y":2},"b":null,"a":7})"}) {
    EXPECT_TRUE(allows(schema, text, any)) << text;
  }
  for (const char* text :
       {R"({"a":1})", R"({"b":null,"b":null})", R"({"b":null,"c":{"u":4,"x":1,"z":3,"y":2}})",
        R"({"b":null,"a":true})", R"({"z":true,"b":null,"z":true})",
        R"({"b":null,"a":1,"c":{"u":4,"x":1,"z":3}})"}) {
    EXPECT_FALSE(allows(schema, text, any)) << text;
  }
  EXPECT_FALSE(allows(schema, R"({"b":null,"a":1})"));  // the order of the schema
  EXPECT_FALSE(compile_spec(SpecKind::kJsonSchema,
                            R"({"properties":{"a":false},"required":["a"],"type":"object"})", any));
}

// A string that stays in one state of its automaton is not walked; every token is judged as if it
// were.
TEST(Schemas, LongStringsOfPatterns) {
  for (const char* schema : {R"({"pattern":"^[a-zß-ö€-₯𝄞]*$"})", R"({"pattern":"é+$"})",
                             R"({"minLength":2,"pattern":"^[^x]*$"})",
                             R"({"type":"string","maxLength":5,"pattern":"^.*$"})"}) {
    const auto grammar = compile_spec(SpecKind::kJsonSchema, schema);
    ASSERT_TRUE(grammar) << schema;
    std::vector<std::string> tokens{"\"",
                                    "a",
                                    "x",
                                    "\xC3",
                                    "\xA9",
                                    "é",
                                    "éé",
                                    "€",
                                    "€a",
                                    "ab\xE2\x82",
                                    "\xF0\x9D\x84\x9E",
                                    "abcabcab",
                                    "aaaa",
                                    "aaaaa",
                                    "aaaa\"",
                                    "aa\xC3",
                                    "\xC3\xC3",
                                    "\xED\xA0\x80",
                                    "zz\xFF",
                                    "\\",
                                    "\n"};
    for (int i = 0; i < 40; ++i)
      tokens.push_back("ab" + std::string(static_cast<size_t>(i), 'c') + (i % 3 == 0 ? "é" : "d"));
    tokens.emplace_back();
    const auto end = static_cast<TokenId>(tokens.size() - 1);
    const auto vocabulary = Vocabulary::make(std::move(tokens), {end});
    const auto of_tokens =
        Grammar::compile({SpecKind::kJsonSchema, schema, {}}, vocabulary).value();
    for (const char* begin : {"\"", "\"a", "\"éa", "\"aaa"}) {
      Matcher matcher(of_tokens);
      if (!matcher.append_bytes(begin)) continue;
      std::vector<uint32_t> mask(vocabulary->mask_words());
      matcher.fill_mask(mask);
      for (TokenId token = 0; token < vocabulary->size(); ++token) {
        Matcher copy(matcher);
        EXPECT_EQ((mask[token / 32] >> (token % 32) & 1) != 0, copy.append(token))
            << schema << " " << begin << " token " << token << " " << vocabulary->bytes(token);
      }
    }
  }
}

TEST(Rules, NoTextAtAll) {
  const auto regex = compile_spec(SpecKind::kRegex, "a(?=b)c");
  ASSERT_FALSE(regex);
  EXPECT_THAT(regex.error().message, HasSubstr("no text matches"));
}

TEST(Rules, Refusals) {
  const auto told = [](const char* text) {
    const auto grammar = compile_spec(SpecKind::kGrammar, text);
    return grammar ? "compiled" : grammar.error().where + ": " + grammar.error().message;
  };
  EXPECT_THAT(told("root ::= a"), HasSubstr("\"a\" is not defined"));
  EXPECT_THAT(told("a ::= \"x\""), HasSubstr("no rule \"root\""));
  EXPECT_THAT(told("root ::= \"x"), HasSubstr("line 1"));
  EXPECT_THAT(told("root ::= root \"a\""), HasSubstr("no text matches"));
  EXPECT_THAT(told("root ::= <|nothing|>"), HasSubstr("no special token"));
}

}  // namespace
}  // namespace penstock::grammar
