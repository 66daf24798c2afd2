// Members in any order: how many there are, and which need which.
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "grammar/program/program.h"
#include "small_vocabulary.h"

namespace penstock::grammar {
namespace {

std::shared_ptr<const Grammar> in_any_order(const std::string& schema) {
  auto grammar = Grammar::compile({SpecKind::kJsonSchema, schema, {.any_member_order = true}},
                                  small_vocabulary());
  EXPECT_TRUE(grammar) << schema << ": " << grammar.error().message;
  return grammar ? *grammar : nullptr;
}

// Also that what is taken so far can always go on: a text that is not allowed is refused at the
// byte that spoils it.
bool takes(const std::string& schema, std::string_view text) {
  const auto grammar = in_any_order(schema);
  if (grammar == nullptr) return false;
  Matcher matcher(grammar);
  return matcher.append_bytes(text) && matcher.may_end();
}

TEST(Members, OverlappingListsAndTypesAreOneSet) {
  const std::string schema =
      R"({"properties":{"a":{"items":{"properties":{"c":{"anyOf":[{"enum":[503]},{"type":"integer"}]}}}},"b":{"enum":["%env"]}}})";
  EXPECT_TRUE(takes(schema, R"({"b":"%env","a":[{"c":503},{"c":7}]})"));
  EXPECT_FALSE(takes(schema, R"({"a":[{"c":"503"}]})"));
  EXPECT_FALSE(takes(schema, R"({"b":"env"})"));
}

TEST(Members, ChoicesOfListsAreEmptyWhenNoneHolds) {
  const std::string schema =
      R"({"required":["a"],"properties":{"a":{"anyOf":[{"enum":[1,2]},{"const":3}]}},"anyOf":[{"properties":{"a":{"minimum":3}}},{"properties":{"a":{"type":"string"}}}]})";
  EXPECT_TRUE(takes(schema, R"({"a":3})"));
  EXPECT_FALSE(takes(schema, R"({"a":2})"));
}

constexpr const char* kDependent =
    R"({"type":"object","patternProperties":{"^[a-c]$":{}},"additionalProperties":false,"dependencies":{"a":{"anyOf":[{"required":["b"]},{"required":["c"]}]}},"maxProperties":2})";

TEST(Members, DependenciesBesideABound) {
  for (const char* text : {R"({})", R"({"a":true,"b":true})", R"({"b":true,"a":true})",
                           R"({"c":1,"a":2})", R"({"b":1,"c":2})"})
    EXPECT_TRUE(takes(kDependent, text)) << text;
  for (const char* text : {R"({"a":true})", R"({"a":1,"b":2,"c":3})", R"({"d":1})"})
    EXPECT_FALSE(takes(kDependent, text)) << text;
}

TEST(Members, AreAsManyAsTheyMust) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"required":["c"],"additionalProperties":false,"minProperties":2,"maxProperties":2})";
  EXPECT_TRUE(takes(schema, R"({"b":1,"c":2})"));
  EXPECT_TRUE(takes(schema, R"({"c":2,"a":2})"));
  EXPECT_FALSE(takes(schema, R"({"c":2})"));
  EXPECT_FALSE(takes(schema, R"({"a":2,"b":2)"));  // no room for c
  EXPECT_FALSE(takes(schema, R"({"c":2,"a":1,"b":1})"));
}

TEST(Members, WhatComesTogetherCountsTogether) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{},"b":{}},"additionalProperties":{"type":"null"},"dependentRequired":{"a":["b"],"b":["a"]},"minProperties":1,"maxProperties":2})";
  EXPECT_TRUE(takes(schema, R"({"a":1,"b":1})"));
  EXPECT_TRUE(takes(schema, R"({"z":null})"));
  EXPECT_FALSE(takes(schema, R"({"z":null,"a")"));
  EXPECT_FALSE(takes(schema, R"({"a":1,"z")"));
}

TEST(Members, OtherKeysOfWhichThereAreFew) {
  const std::string schema =
      R"({"type":"object","properties":{"x":{}},"patternProperties":{"^[ab]$":{}},"additionalProperties":false,"minProperties":3})";
  EXPECT_TRUE(takes(schema, R"({"x":1,"a":1,"b":1})"));
  EXPECT_TRUE(takes(schema, R"({"b":1,"x":1,"a":1})"));
  EXPECT_FALSE(takes(schema, R"({"b":1,"x":1})"));
}

// Members that must be there, whatever their name: each as the schemas of tools/check_schemas.py
// have them.
TEST(Members, ThatMustExistCountWithAllOthers) {
  const std::string schema =
      R"({"type":"object","not":{"additionalProperties":{"type":"string"}},"required":["a"],"maxProperties":2})";
  for (const char* text :
       {R"({"a":1})", R"({"a":"x","b":1})", R"({"b":1,"a":"x"})", R"({"a":1,"b":"x"})"})
    EXPECT_TRUE(takes(schema, text)) << text;
  for (const char* text :
       {R"({"a":"x"})", R"({"a":"x","b":"y"})", R"({"b":"x","c":"x")", R"({"a":"x","b":1,"c":1})"})
    EXPECT_FALSE(takes(schema, text)) << text;
}

TEST(Members, ThatMustExistMayHaveTheNamesOfOthers) {
  const std::string objects =
      R"({"type":"object","properties":{"c":{"maximum":503},"d":{"type":["object","integer"]}},"not":{"additionalProperties":{"type":"object"}},"additionalProperties":{"type":"object"}})";
  EXPECT_TRUE(takes(objects, R"({"d":{"a":1},"c":503})"));
  EXPECT_TRUE(takes(objects, R"({"d":3,"x":{}})"));
  EXPECT_FALSE(takes(objects, R"({"d":{"a":1},"x":{}})"));
  const std::string one_for_both =
      R"({"type":"object","not":{"anyOf":[{"properties":{"b":{}},"additionalProperties":{"enum":[5]}},{"patternProperties":{"^[ab]$":{"type":"string"}}}]}})";
  EXPECT_TRUE(takes(one_for_both, R"({"a":1})"));
  EXPECT_TRUE(takes(one_for_both, R"({"c":1,"b":1})"));
  EXPECT_FALSE(takes(one_for_both, R"({"b":1})"));
  EXPECT_FALSE(takes(one_for_both, R"({"a":"x"})"));
}

TEST(Members, ThatMustExistAreFoundAmongFewKeys) {
  const std::string schema =
      R"({"type":"object","propertyNames":{"enum":["k","l"]},"not":{"additionalProperties":{"type":"string"}}})";
  EXPECT_TRUE(takes(schema, R"({"l":"x","k":1})"));
  EXPECT_FALSE(takes(schema, R"({"l":"x","k":"x")"));  // the last key that there is
}

TEST(Members, ThatMustExistMayBeSeveral) {
  const std::string schema =
      R"({"type":"object","maxProperties":2,"allOf":[{"not":{"additionalProperties":{"type":"string"}}},)"
      R"({"not":{"additionalProperties":{"type":"integer"}}},{"not":{"additionalProperties":{"type":"null"}}},)"
      R"({"not":{"additionalProperties":{"type":"boolean"}}},{"not":{"additionalProperties":{"type":"array"}}}]})";
  EXPECT_TRUE(takes(schema, R"({"x":1,"y":"z"})"));
  EXPECT_TRUE(takes(schema, R"({"x":{}})"));
  EXPECT_FALSE(takes(schema, R"({"x":1})"));
  EXPECT_FALSE(takes(schema, R"({"x":1,"y":2})"));
}

// Which key comes would decide which of them is found.
TEST(Members, ThatMustExistByDifferentPatternsAreNotCounted) {
  const auto refused = Grammar::compile(
      {SpecKind::kJsonSchema,
       R"({"type":"object","maxProperties":1,"not":{"anyOf":[{"patternProperties":{"^a":{"type":"string"}}},{"patternProperties":{"b$":{"type":"string"}}}]}})"},
      small_vocabulary());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, RefusalKind::kUnsupported);
}

// Their masks take milliseconds to make and are there before the first request.
TEST(Members, OfAnyKeyShareTheMasksOfStrings) {
  for (const char* schema :
       {R"({"type":"object","patternProperties":{"":{"type":"integer"}}})",
        R"({"type":"object","patternProperties":{"^":true,".*":{"type":"null"}}})"}) {
    const auto grammar = in_any_order(schema);
    ASSERT_TRUE(grammar);
    for (const ObjectGraph& object : grammar->program().objects)
      EXPECT_EQ(object.other_keys, CommonLexemes::get().canonical_string) << schema;
    EXPECT_FALSE(takes(schema, R"({"a":"x"})")) << schema;
  }
  EXPECT_TRUE(takes(R"({"patternProperties":{"":{"type":"integer"}}})", R"({"a":1,"":2})"));
}

// 26 keys, of which one at least has another value than a string; in both orders.
TEST(Members, MustExistUnderOneOfScarceKeys) {
  const std::string schema =
      R"({"type":"object","not":{"patternProperties":{"^[a-z]$":{"type":"string"}}}})";
  std::string all_but_z;
  for (char key = 'a'; key < 'z'; ++key) all_but_z += std::string("\"") + key + R"(":"x",)";
  for (const bool any_order : {true, false}) {
    const auto grammar =
        Grammar::compile({SpecKind::kJsonSchema, schema, {.any_member_order = any_order}},
                         small_vocabulary())
            .value();
    const auto allowed = [&](std::string text) {
      Matcher matcher(grammar);
      return matcher.append_bytes(text) && matcher.may_end();
    };
    EXPECT_TRUE(allowed(R"({"b":1})"));
    EXPECT_TRUE(allowed(R"({"a":"x","zz":"y","b":[],"c":"x"})"));
    EXPECT_TRUE(allowed("{" + all_but_z + R"("aa":"x","z":null})"));
    EXPECT_TRUE(allowed(R"({"a":1,)" + all_but_z.substr(8) + R"("z":"x"})"));
    EXPECT_FALSE(allowed("{}"));
    EXPECT_FALSE(allowed(R"({"a":"x","aa":1})"));
    // The last key is kept for what must come.
    Matcher matcher(grammar);
    ASSERT_TRUE(matcher.append_bytes("{" + all_but_z + R"("z":)"));
    std::vector<uint32_t> mask(grammar->vocabulary().mask_words());
    matcher.fill_mask(mask);
    const auto may = [&](char c) { return (mask[c / 32] >> (c % 32) & 1) != 0; };
    EXPECT_TRUE(may('1') && may('[') && may('{') && may('n'));
    EXPECT_FALSE(may('"'));
    EXPECT_FALSE(matcher.append_bytes("\""));
    EXPECT_TRUE(matcher.append_bytes("1}"));
  }
}

TEST(Members, SeveralMustExistUnderScarceKeys) {
  const std::string schema =
      R"({"type":"object","allOf":[{"not":{"patternProperties":{"^[a-t]$":{"type":"string"}}}},{"not":{"patternProperties":{"^[f-z]$":{"type":"integer"}}}}],"propertyNames":{"pattern":"^[a-z]$"}})";
  EXPECT_TRUE(takes(schema, R"({"a":1,"z":"x"})"));
  EXPECT_TRUE(takes(schema, R"({"k":null})"));
  EXPECT_TRUE(takes(schema, R"({"k":"x","l":3})"));
  EXPECT_FALSE(takes(schema, R"({"a":1})"));
  EXPECT_FALSE(takes(schema, R"({"z":"x"})"));
  const auto grammar = in_any_order(schema);
  Matcher matcher(grammar);
  std::string text = "{";
  for (char key = 'a'; key <= 's'; ++key) text += std::string("\"") + key + R"(":"x",)";
  EXPECT_TRUE(matcher.append_bytes(text));
  EXPECT_FALSE(matcher.append_bytes(R"("t":"x")"));
  EXPECT_TRUE(matcher.append_bytes(R"("t":1,"u":"x"})"));
}

// Members a…b with the value, each with a comma behind.
std::string members_from(char first, char last, const std::string& value) {
  std::string text;
  for (char key = first; key <= last; ++key) text += std::string("\"") + key + "\":" + value + ",";
  return text;
}

// That others must still come takes no keys which only one of them can have.
TEST(Members, ScarceKeysAreKeptForWhatCanHaveThem) {
  const std::string schema =
      R"({"type":"object","allOf":[{"not":{"patternProperties":{"^[a-t]$":{"type":"string"}}}},{"not":{"patternProperties":{"^[A-T]$":{"type":"string"}}}}]})";
  EXPECT_TRUE(takes(schema, "{" + members_from('a', 's', "\"x\"") + R"("t":1,"A":2})"));
  EXPECT_TRUE(takes(schema, "{" + members_from('a', 's', "\"x\"") +
                                members_from('A', 'S', "\"x\"") + R"("T":1,"t":2})"));
  EXPECT_FALSE(takes(schema, "{" + members_from('a', 't', "\"x\"") + R"("A":2})"));
  Matcher matcher(in_any_order(schema));
  EXPECT_TRUE(matcher.append_bytes("{" + members_from('a', 's', "\"x\"")));
  EXPECT_FALSE(matcher.append_bytes(R"("t":"x")"));
}

TEST(Members, OneMayBeSeveralOfThoseThatMustCome) {
  const std::string schema =
      R"({"type":"object","allOf":[{"not":{"patternProperties":{"^[a-t]$":{"enum":[1,2]}}}},{"not":{"patternProperties":{"^[a-t]$":{"enum":[1,3]}}}}]})";
  EXPECT_TRUE(takes(schema, "{" + members_from('a', 's', "1") + R"("t":null})"));
  EXPECT_TRUE(takes(schema, "{" + members_from('a', 'r', "1") + R"("s":2,"t":3})"));
  EXPECT_TRUE(takes(schema, "{" + members_from('a', 'r', "1") + R"("s":2,"t":null})"));
  EXPECT_FALSE(takes(schema, "{" + members_from('a', 's', "1") + R"("t":2})"));
  for (const char* value : {"1", "2", "3"}) {
    Matcher matcher(in_any_order(schema));
    EXPECT_TRUE(matcher.append_bytes("{" + members_from('a', 's', "1") + "\"t\":"));
    EXPECT_FALSE(matcher.append_bytes(value + std::string("}"))) << value;
  }
}

// Of the keys of a pattern one is left by the others.
TEST(Members, MustExistUnderOneKeyThatIsLeft) {
  const std::string two =
      R"({"type":"object","allOf":[{"not":{"patternProperties":{"^[a-t]$":{"type":"string"}}}},{"not":{"patternProperties":{"^[A-T]$":{"type":"string"}}}}],"patternProperties":{"^[b-t]$":{"type":"string"}}})";
  EXPECT_TRUE(takes(two, R"({"b":"x","a":1,"B":1})"));
  EXPECT_FALSE(takes(two, R"({"a":"x","B":1})"));
  EXPECT_FALSE(takes(two, R"({"b":1,"B":1})"));
  const std::string one =
      R"({"type":"object","allOf":[{"not":{"patternProperties":{"^[a-t]$":{"enum":[1,2]}}}},{"not":{"patternProperties":{"^[a-t]$":{"enum":[1,3]}}}}],"patternProperties":{"^[b-t]$":{"const":1}}})";
  EXPECT_TRUE(takes(one, R"({"b":1,"a":null})"));
  EXPECT_FALSE(takes(one, R"({"a":2})"));
}

}  // namespace
}  // namespace penstock::grammar
