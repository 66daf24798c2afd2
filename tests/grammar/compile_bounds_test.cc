// What a compilation may take: counted steps, so that whoever sends a schema knows beforehand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <optional>

#include "grammar/grammar.h"
#include "schema_text.h"
#include "small_vocabulary.h"

namespace penstock::grammar {
namespace {

struct Tried {
  bool compiled = false;
  Refusal refusal;
  uint64_t steps = 0;
  std::vector<Note> notes;
};

Tried try_schema(const std::string& schema, const CompileLimits& limits = {}) {
  Tried tried;
  const auto grammar =
      Grammar::compile({SpecKind::kJsonSchema, schema}, small_vocabulary(), limits, &tried.steps);
  tried.compiled = grammar.has_value();
  if (!grammar) tried.refusal = grammar.error();
  if (grammar) tried.notes.assign((*grammar)->notes().begin(), (*grammar)->notes().end());
  return tried;
}

std::string unique_items(int n) {
  const std::string values =
      list_of(n, [](int i) { return fmt::format("\"value {}\",{}", i, i * 7); });
  return fmt::format(R"({{"items":{{"enum":[{}]}},"uniqueItems":true,"minItems":{}}})", values, n);
}

TEST(CompileBounds, UniqueItemsOverALargeEnumAreCounted) {
  const Tried one = try_schema(unique_items(1000)), two = try_schema(unique_items(2000));
  ASSERT_TRUE(one.compiled && two.compiled) << one.refusal.message;
  EXPECT_LT(one.steps, 3'000'000u);
  EXPECT_LT(two.steps, 3 * one.steps);
}

// An object with these members, all of which are required.
std::string members(const std::vector<std::string>& names) {
  const auto list = [&](const char* form) {
    return list_of(static_cast<int>(names.size()),
                   [&](int i) { return fmt::format(fmt::runtime(form), names[i]); });
  };
  return fmt::format(R"({{"type":"object","properties":{{{}}},"required":[{}]}})",
                     list("\"{}\":{{\"type\":\"null\"}}"), list("\"{}\""));
}

std::vector<std::string> plain_names(int n) {
  std::vector<std::string> names;
  for (int i = 0; i < n; ++i) names.push_back(fmt::format("{:016}", i));
  return names;
}

// Seconds of the processor until what has few steps is refused.
double seconds_of(SpecKind kind, const std::string& text) {
  const std::clock_t begin = std::clock();
  const auto grammar = Grammar::compile({kind, text}, small_vocabulary(), {.max_steps = 2'000'000});
  EXPECT_EQ(grammar ? std::nullopt : std::optional(grammar.error().kind), RefusalKind::kTooLarge);
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// Quick compilations wait for what others begin: if it went on, for 5 to 30 seconds.
TEST(CompileBounds, WorkEndsWhereItsStepsEnd) {
  EXPECT_LT(seconds_of(SpecKind::kJsonSchema, members(plain_names(40'000))), 2);
}

TEST(CompileBounds, MembersThatDependOnOthersAreCounted) {
  const std::string pairs =
      list_of(20'000, [](int i) { return fmt::format("\"{:016}\":[\"{:016}\"]", i, i + 1); });
  const std::string schema =
      fmt::format(R"({{"type":"object","dependentRequired":{{{}}}}})", pairs);
  EXPECT_LT(seconds_of(SpecKind::kJsonSchema, schema), 2);
}

// A class of its own for each of many characters.
TEST(CompileBounds, ClassesOfCharactersAreCounted) {
  std::string regex;
  for (uint32_t c = 0x4e00; c < 0x4e00 + 20'000; ++c) {
    const char bytes[] = {static_cast<char>(0xe0 | c >> 12),
                          static_cast<char>(0x80 | (c >> 6 & 63)),
                          static_cast<char>(0x80 | (c & 63)), 0};
    regex += fmt::format("[a-z{}]", bytes);
  }
  EXPECT_LT(seconds_of(SpecKind::kRegex, regex), 2);
}

// Whether two objects are apart is found by the members that one requires and the other forbids.
TEST(CompileBounds, RequiredBesideForbiddenMembersAreCounted) {
  const auto schema = [](int n_keys) {
    const std::string required = list_of(n_keys, [](int i) { return fmt::format("\"r{}\"", i); }),
                      forbidden =
                          list_of(n_keys, [](int i) { return fmt::format("\"f{}\":false", i); }),
                      each = list_of(32, [](int i) {
                        return fmt::format(
                            R"({{"$ref":"#/$defs/b","properties":{{"x":{{"minLength":{}}}}}}})", i);
                      });
    return fmt::format(
        R"({{"$defs":{{"b":{{"type":"object","required":[{}],"properties":{{{}}}}}}},"oneOf":[{}]}})",
        required, forbidden, each);
  };
  const Tried some = try_schema(schema(50), {.max_steps = 100'000'000}),
              many = try_schema(schema(500), {.max_steps = 100'000'000});
  EXPECT_GT(some.steps, 32u * 31 * 50 * 50);
  EXPECT_FALSE(many.compiled);
  EXPECT_EQ(many.refusal.kind, RefusalKind::kTooLarge);
}

TEST(CompileBounds, ValuesOfOneOfAreCountedByTheirSize) {
  const auto schema = [](size_t size) {
    const std::string each =
        list_of(50, [](int) { return std::string(R"({"$ref":"#/$defs/a"})"); });
    return fmt::format(R"({{"$defs":{{"a":{{"const":"{}"}}}},"oneOf":[{}]}})",
                       std::string(size, 'x'), each);
  };
  EXPECT_GT(try_schema(schema(100'000)).steps, try_schema(schema(1'000)).steps + 50 * 99'000 / 16);
}

// One of many constants: each other value is none of them, however they are written.
TEST(CompileBounds, OneOfManyConstantsIsLinear) {
  const auto one_of = [](int n, const std::string& form, const std::string& more = "") {
    return R"({"oneOf":[)" + list_of(n, [&](int i) { return fmt::format(fmt::runtime(form), i); }) +
           more + "]}";
  };
  const std::pair<std::string, std::string> forms[] = {
      {R"({{"const":{0}}})", ""},
      {R"({{"type":"integer","const":{0}}})", ""},
      {R"({{"type":"string","minLength":1,"enum":["a{0}","b{0}"]}})", ""},
      {R"({{"type":"string","const":"v{0}"}})",
       R"(,{"type":"string","pattern":"^w"},{"type":"null"})"},
  };
  for (const auto& [form, more] : forms) {
    const Tried one = try_schema(one_of(150, form, more)),
                two = try_schema(one_of(300, form, more));
    EXPECT_TRUE(one.compiled && two.compiled) << form << ": " << two.refusal.message;
    EXPECT_LT(two.steps, 1'000'000u) << form;
    EXPECT_LT(two.steps, 3 * one.steps) << form;
  }
}

TEST(CompileBounds, OneOfManyObjectsToldApartCompiles) {
  for (const auto& [n, required] : {std::pair(30, ""), std::pair(100, R"(,"required":["a"])")}) {
    const std::string members = list_of(n, [&, required = required](int i) {
      return fmt::format(R"({{"properties":{{"a":{{"const":{}}},"b{}":{{}}}}{}}})", i, i, required);
    });
    const Tried tried = try_schema(R"({"oneOf":[)" + members + "]}");
    EXPECT_TRUE(tried.compiled) << tried.refusal.message;
    EXPECT_LT(tried.steps, 5'000'000u) << required;
  }
}

TEST(CompileBounds, TooManyUniqueItemsAreRefused) {
  const Tried tried =
      try_schema(R"({"items":{"type":"string"},"uniqueItems":true,"minItems":1000000})");
  EXPECT_EQ(tried.refusal.kind, RefusalKind::kTooLarge);
  EXPECT_EQ(tried.refusal.keyword, "uniqueItems");
}

// Kinds of schemas whose work grows faster than their text.
std::vector<std::string> heavy_schemas(int n) {
  const auto text = [](int i) { return fmt::format("\"k{}\"", i); };
  const std::string properties =
      list_of(n, [&](int i) { return text(i) + R"(:{"minimum":)" + std::to_string(i) + "}"; });
  return {
      R"({"not":{"enum":[)" + list_of(n, [](int i) { return std::to_string(i * 3); }) + "]}}",
      R"({"allOf":[)" +
          list_of(n,
                  [&](int i) {
                    return fmt::format(
                        R"({{"anyOf":[{{"required":["a{0}"]}},{{"required":["b{0}"]}}]}})", i);
                  }) +
          "]}",
      R"({"properties":{)" + properties +
          R"(},"additionalProperties":false,"minProperties":2,"not":{"required":["k1"]}})",
      R"({"oneOf":[)" +
          list_of(n,
                  [&](int i) {
                    return R"({"properties":{"a":{"const":)" + std::to_string(i) + "}}}";
                  }) +
          "]}",
      R"({"dependentRequired":{)" +
          list_of(n, [&](int i) { return text(i) + ":[" + text(i + 1) + "]"; }) +
          R"(},"maxProperties":5})",
      R"({"patternProperties":{)" +
          list_of(n, [](int i) { return fmt::format(R"("{}.*{}":true)", i, i + 1); }) + "}}",
      R"({"allOf":[)" +
          list_of(n, [](int i) { return fmt::format(R"({{"enum":[0,{},{}]}})", i + 1, i + 2); }) +
          "]}",
      R"({"prefixItems":[)" + list_of(n, [](int) { return std::string("{\"type\":\"string\"}"); }) +
          R"(],"items":{"type":"integer"}})",
      R"({"enum":[)" +
          list_of(n, [&](int i) { return fmt::format(R"({{"a":{0},"b":[{0}]}})", i); }) +
          R"(],"not":{"properties":{"a":{"maximum":3}}}})",
      R"({"$defs":{)" + list_of(n, [&](int i) { return text(i) + R"(:{"type":"string"})"; }) +
          R"(},"properties":{)" +
          list_of(n,
                  [&](int i) { return text(i) + fmt::format(R"(:{{"$ref":"#/$defs/k{}"}})", i); }) +
          "}}",
  };
}

TEST(CompileBounds, NoSchemaTakesMoreThanTheSteps) {
  CompileLimits limits;
  limits.max_steps = 1'000'000;
  for (const std::string& schema : heavy_schemas(300)) {
    const Tried tried = try_schema(schema, limits);
    EXPECT_LT(tried.steps, limits.max_steps + limits.max_steps / 2) << schema.substr(0, 60);
    if (!tried.compiled) {
      EXPECT_NE(tried.refusal.kind, RefusalKind::kInvalid) << tried.refusal.message;
    }
  }
}

TEST(CompileBounds, WorkThatIsCancelledEnds) {
  const std::atomic<bool> cancelled = true;
  CompileLimits limits;
  limits.cancelled = &cancelled;
  for (const std::string& schema : heavy_schemas(100)) {
    const Tried tried = try_schema(schema, limits);
    EXPECT_FALSE(tried.compiled) << schema.substr(0, 60);
    EXPECT_LT(tried.steps, 20'000U) << schema.substr(0, 60);
  }
}

TEST(CompileBounds, PlacesAndNotesDoNotGrowWithDepth) {
  const std::string key(100'000, 'k');
  std::string schema = R"({"properties":{")" + key + R"(":{"anyOf":[)" +
                       list_of(5000, [](int) { return std::string(R"({"x-own":1})"); }) + "]}}}";
  const Tried noted = try_schema(schema);
  size_t bytes = 0;
  for (const Note& note : noted.notes) {
    EXPECT_LE(note.where.size(), 5000U);
    bytes += note.where.size() + note.message.size();
  }
  EXPECT_LT(bytes, 300'000U);
}

TEST(CompileBounds, ValuesOfADocumentAreCounted) {
  CompileLimits limits;
  limits.max_values = 100;
  const Tried tried = try_schema(
      R"({"enum":[)" + list_of(200, [](int i) { return std::to_string(i); }) + "]}", limits);
  EXPECT_EQ(tried.refusal.kind, RefusalKind::kTooLarge);
}

TEST(CompileBounds, IdentifiersAreCounted) {
  const std::string key(5000, 'k');
  EXPECT_EQ(try_schema(R"({"$id":"http://a/)" + key + R"(/","properties":{"a":{"$id":"b"}}})")
                .refusal.kind,
            RefusalKind::kTooLarge);
}

}  // namespace
}  // namespace penstock::grammar
