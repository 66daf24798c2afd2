// Objects that are closed to members which no schema names: JsonStyle::closed_objects.
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "small_vocabulary.h"

namespace penstock::grammar {
namespace {

class ClosedObjects : public ::testing::TestWithParam<bool> {
 protected:
  std::shared_ptr<const Grammar> compiled(const std::string& schema) {
    auto grammar = Grammar::compile(
        {SpecKind::kJsonSchema, schema, {.closed_objects = true, .any_member_order = GetParam()}},
        small_vocabulary());
    EXPECT_TRUE(grammar) << schema << ": " << grammar.error().message;
    return grammar ? *grammar : nullptr;
  }
  bool allows(const std::string& schema, std::string_view text) {
    const auto grammar = compiled(schema);
    if (grammar == nullptr) return false;
    Matcher matcher(grammar);
    return matcher.append_bytes(text) && matcher.may_end();
  }
  void expect(const std::string& schema, std::vector<const char*> allowed,
              std::vector<const char*> forbidden) {
    for (const char* text : allowed) EXPECT_TRUE(allows(schema, text)) << schema << " " << text;
    for (const char* text : forbidden) EXPECT_FALSE(allows(schema, text)) << schema << " " << text;
  }
};

INSTANTIATE_TEST_SUITE_P(Orders, ClosedObjects, ::testing::Bool());

TEST_P(ClosedObjects, HaveWhatPropertiesAndPatternsName) {
  expect(R"({"type":"object","properties":{"a":{"properties":{"b":{}}}}})",
         {R"({})", R"({"a":{}})", R"({"a":{"b":1}})", R"({"a":7})"},
         {R"({"c":1})", R"({"a":{"c":1}})"});
  expect(R"({"type":"object","properties":{"a":{}},"patternProperties":{"^x":{"type":"integer"}}})",
         {R"({"a":1,"x":2,"xy":3})"}, {R"({"x":"2"})", R"({"b":1})"});
  expect(R"({"type":"object","properties":{}})", {"{}"}, {R"({"a":1})"});
  expect(R"({"type":"array","items":{"type":"object","properties":{"a":{}}}})", {R"([{"a":1},{}])"},
         {R"([{"b":1}])"});
}

TEST_P(ClosedObjects, AreOpenWhereNothingIsNamedOrItIsSaid) {
  const char* other = R"({"a":1,"other":[{}]})";
  for (
      const char* schema :
      {R"({"type":"object"})", R"({})", R"({"type":"object","required":["a"]})",
       R"({"type":"object","minProperties":1,"propertyNames":{"maxLength":9}})",
       R"({"properties":{"a":{}},"additionalProperties":true})",
       R"({"properties":{"a":{}},"additionalProperties":{}})",
       R"({"properties":{"a":{}},"additionalProperties":{"type":"array"}})",
       R"({"properties":{"a":{}},"unevaluatedProperties":true})",
       R"({"allOf":[{"properties":{"a":{}}},{"additionalProperties":true}]})",
       R"({"$ref":"#/$defs/a","$defs":{"a":{"properties":{"a":{}},"additionalProperties":true}}})"})
    expect(schema, {other}, {});
  expect(R"({"properties":{"a":{}},"additionalProperties":{"type":"string"}})", {R"({"b":"x"})"},
         {other});
}

TEST_P(ClosedObjects, RequiredNamesStay) {
  expect(R"({"type":"object","properties":{"a":{}},"required":["a","b"]})", {R"({"a":1,"b":2})"},
         {R"({"a":1})", R"({"a":1,"b":2,"c":3})"});
  expect(
      R"({"properties":{"a":{}},"type":"object","anyOf":[{"required":["b"]},{"required":["c"]}]})",
      {R"({"b":1})", R"({"a":1,"c":1})"}, {R"({"a":1})", R"({"b":1,"d":1})"});
}

TEST_P(ClosedObjects, PiecesOfOneObjectCountTogether) {
  const char* both = R"({"a":1,"b":2})";
  expect(R"({"type":"object","allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]})", {both},
         {R"({"a":1,"b":2,"c":3})"});
  expect(
      R"({"type":"object","properties":{"b":{}},"allOf":[{"$ref":"#/$defs/base"}],"$defs":{"base":{"properties":{"a":{}},"required":["a"]}}})",
      {both, R"({"a":1})"}, {R"({"b":2})", R"({"a":1,"c":1})"});
  expect(
      R"({"type":"object","$ref":"#/$defs/base","properties":{"b":{}},"$defs":{"base":{"properties":{"a":{}}}}})",
      {both}, {R"({"a":1,"c":1})"});
  // A member that two pieces name is of both.
  expect(
      R"({"type":"object","allOf":[{"properties":{"o":{"properties":{"a":{}}}}},{"properties":{"o":{"type":"object","properties":{"b":{}}}}}]})",
      {R"({"o":{"a":1,"b":2}})"}, {R"({"o":{"c":1}})"});
  expect(
      R"({"type":"object","properties":{"kind":{"enum":["x","y"]}},"required":["kind"],"if":{"properties":{"kind":{"const":"x"}}},"then":{"properties":{"a":{}}},"else":{"properties":{"b":{}}}})",
      {R"({"kind":"x","a":1})", R"({"kind":"y","b":1})"},
      {R"({"kind":"x","b":1})", R"({"kind":"y","a":1})", R"({"kind":"x","c":1})"});
  expect(
      R"({"type":"object","properties":{"a":{}},"dependentSchemas":{"a":{"properties":{"b":{}}}}})",
      {R"({})", both}, {R"({"c":1})", R"({"a":1,"c":1})"});
  expect(
      R"({"type":"object","allOf":[{"properties":{"a":{}}},{"properties":{"b":{}},"unevaluatedProperties":false}]})",
      {R"({"b":2})"}, {R"({"c":3})"});
}

TEST_P(ClosedObjects, EachAlternativeHasItsOwn) {
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const std::string pets =
        std::string(R"({"type":"object",")") + keyword +
        R"(":[{"properties":{"kind":{"const":"cat"},"lives":{"type":"integer"}},"required":["kind"]},{"properties":{"kind":{"const":"dog"},"tricks":{"type":"array"}},"required":["kind"]}]})";
    expect(pets, {R"({"kind":"cat","lives":9})", R"({"kind":"dog","tricks":[]})"},
           {R"({"kind":"cat","tricks":[]})", R"({"kind":"dog","tricks":[],"c":1})", "{}"});
  }
  expect(R"({"type":"object","anyOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]})",
         {"{}", R"({"a":1})", R"({"b":1})"}, {R"({"c":1})"});
  // One alternative is the other with more members.
  expect(R"({"type":"object","anyOf":[{"properties":{"a":{}}},{"properties":{"a":{},"b":{}}}]})",
         {R"({"a":1,"b":1})"}, {R"({"a":1,"c":1})"});
  expect(R"({"type":"object","properties":{"a":{}},"anyOf":[{"properties":{"b":{}}},{}]})",
         {R"({"a":1})"}, {R"({"c":1})"});
  expect(R"({"anyOf":[{"type":"object"},{"properties":{"a":{}}}]})", {R"({"c":1})"}, {});
}

TEST_P(ClosedObjects, WhatNothingWouldBeLeftOfStaysOpen) {
  expect(R"({"type":"object","properties":{"a":{}},"minProperties":2})", {R"({"a":1,"b":2})"},
         {R"({"a":1})"});
  expect(R"({"type":"object","properties":{"a":{}},"minProperties":1})", {R"({"a":1})"},
         {R"({"b":1})"});
  expect(R"({"type":"object","properties":{"a":{}},"not":{"properties":{"b":{"type":"string"}}}})",
         {R"({"b":1})"}, {R"({"b":"x"})", R"({"a":1})"});
  // The complement of what is told apart asks for nothing that is not named.
  expect(R"({"type":"object","properties":{"a":{}},"not":{"required":["b"]}})", {R"({"a":1})"},
         {R"({"b":1})", R"({"c":1})"});
}

TEST_P(ClosedObjects, ListedValuesAreWhatIsListed) {
  expect(R"({"properties":{"a":{}},"enum":[{"a":1,"b":2},{"c":3}]})",
         {R"({"a":1,"b":2})", R"({"c":3})"}, {R"({"a":1})"});
}

TEST_P(ClosedObjects, Recursion) {
  expect(
      R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v"]}}})",
      {R"({"v":1,"next":{"v":2,"next":null}})"}, {R"({"v":1,"next":{"v":2,"w":3}})"});
}

}  // namespace
}  // namespace penstock::grammar
