// Schemas of tools whose references make much of little: work stays linear in the document.
#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "frontend/chat/parameter_schemas.h"

namespace penstock {
namespace {

using SchemaJson = nlohmann::ordered_json;

SchemaJson reference(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

// d0 is either of two d1, each of which is either of two d2, …; the last is `end`.
SchemaJson doubling(int n, const SchemaJson& end) {
  SchemaJson definitions = SchemaJson::object();
  for (int i = 0; i < n; ++i) {
    const SchemaJson next = reference("d" + std::to_string(i + 1));
    definitions["d" + std::to_string(i)] = {{"anyOf", SchemaJson::array({next, next})}};
  }
  definitions["d" + std::to_string(n)] = end;
  return {{"$defs", definitions}};
}

// How often `made` succeeds, at most 1000 times.
template <class Made>
int times(Made made) {
  int n = 0;
  while (n < 1000 && made()) ++n;
  return n;
}

TEST(SchemaDocument, TypesOfSharedPartsAreFoundOnce) {
  const SchemaJson root = doubling(30, {{"type", "string"}});
  SchemaBudget budget;
  SchemaDocument document(root, budget);
  const std::clock_t begin = std::clock();
  EXPECT_EQ(document.types_of(reference("d0")), json_types::kString);
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC);
}

TEST(SchemaDocument, OneThatIsPartOfItselfRestrictsNothingThere) {
  const SchemaJson root = {{"$defs",
                            {{"any", {{"anyOf", {reference("any"), {{"type", "string"}}}}}},
                             {"all", {{"allOf", {reference("all"), {{"type", "string"}}}}}}}}};
  SchemaBudget budget;
  SchemaDocument document(root, budget);
  EXPECT_EQ(document.types_of(reference("any")), json_types::kAny);
  EXPECT_EQ(document.types_of(reference("all")), json_types::kString);
}

TEST(SchemaDocument, AlternativesOfAStringAreBounded) {
  const SchemaJson few = doubling(3, {{"type", "string"}, {"maxLength", 3}}),
                   many = doubling(30, {{"type", "string"}, {"maxLength", 3}});
  SchemaBudget of_few, of_many;
  SchemaDocument small(few, of_few), large(many, of_many);
  ASSERT_TRUE(small.string_rules(reference("d0")));
  EXPECT_EQ(small.string_rules(reference("d0"))->size(), 8u);
  const auto refused = large.string_rules(reference("d0"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

TEST(SchemaDocument, CopiesOfDefinitionsAreBounded) {
  SchemaJson definitions = SchemaJson::object();
  for (int i = 0; i < 1000; ++i) definitions["d" + std::to_string(i)] = {{"type", "integer"}};
  const SchemaJson root = {{"$defs", definitions}};
  SchemaBudget budget;
  SchemaDocument document(root, budget);
  const int n = times([&] { return document.document_of(reference("d999"), false).has_value(); });
  EXPECT_GE(n, 50);
  EXPECT_LT(n, 200);
  EXPECT_TRUE(document.document_of({{"type", "integer"}}, false));  // without a reference
}

TEST(SchemaDocument, CopiesOfAStringsRulesAreBounded) {
  SchemaJson names = SchemaJson::array();
  for (int i = 0; i < 1000; ++i) names.push_back(std::to_string(i));
  const SchemaJson root = {{"$defs", {{"name", {{"enum", names}}}}}};
  SchemaBudget budget;
  SchemaDocument document(root, budget);
  const int n = times([&] { return document.string_rules(reference("name")).has_value(); });
  EXPECT_GE(n, 50);
  EXPECT_LT(n, 250);
}

TEST(SchemaDocument, CopiesOfLongTextsAreBounded) {
  const SchemaJson root = {{"$defs",
                            {{"told", {{"description", std::string(1'000'000, 'x')}}},
                             {"like", {{"pattern", std::string(1'000'000, 'x')}}}}}};
  SchemaBudget of_told, of_like;
  SchemaDocument told(root, of_told), like(root, of_like);
  EXPECT_LT(times([&] { return told.document_of(reference("told"), false).has_value(); }), 20);
  EXPECT_LT(times([&] { return like.string_rules(reference("like")).has_value(); }), 20);
}

TEST(SchemaDocument, CopiesOfADialectsNameAreBounded) {
  const SchemaJson root = {{"$schema", std::string(1'000'000, 'x')}};
  SchemaBudget budget;
  SchemaDocument document(root, budget);
  EXPECT_LT(times([&] { return document.document_of({{"type", "integer"}}, false).has_value(); }),
            20);
}

TEST(SchemaDocument, AlternativesWithoutRulesAreBoundedInAll) {
  SchemaJson any = SchemaJson::array();
  for (int i = 0; i < 900; ++i) any.push_back({{"type", "string"}});
  const SchemaJson root = {{"$defs", {{"text", {{"anyOf", any}}}}}};
  SchemaBudget budget;
  SchemaDocument document(root, budget);
  EXPECT_LT(times([&] { return document.string_rules(reference("text")).has_value(); }), 50);
}

TEST(SchemaDocument, CopiesOfOneSchemaAreBounded) {
  const SchemaJson root = {
      {"properties", {{"a", {{"type", "integer"}, {"description", std::string(1'000'000, 'x')}}}}}};
  SchemaBudget budget;
  SchemaDocument document(root, budget);
  const SchemaJson& one = root["properties"]["a"];
  const int n = times([&] { return document.document_of(one, false).has_value(); });
  EXPECT_GE(n, 2);
  EXPECT_LT(n, 20);
}

TEST(SchemaDocument, AllToolsHaveOneBudget) {
  SchemaJson names = SchemaJson::array();
  for (int i = 0; i < 1000; ++i) names.push_back(std::to_string(i));
  const SchemaJson root = {{"$defs", {{"name", {{"enum", names}}}}}};
  SchemaBudget budget;
  const int n = times([&] {
    SchemaDocument tool(root, budget);
    return tool.string_rules(reference("name")).has_value();
  });
  EXPECT_LT(n, 250);
}

}  // namespace
}  // namespace penstock
