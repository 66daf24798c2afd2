// Unions of hundreds of objects, as APIs describe their events: what they take to compile and to
// follow.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "grammar/parts/work_meter.h"
#include "schema_text.h"
#include "small_vocabulary.h"

namespace penstock::grammar {
namespace {

// An event of kind i; kinds of `alike` neighbours are the same.
std::string event(int i, int alike = 1) {
  return fmt::format(
      R"({{"type":"object","properties":{{"id":{{"type":"integer"}},"type":{{"const":"event.{}"}},)"
      R"("data":{{"type":"object","properties":{{"value{}":{{"type":"string"}}}},"required":["value{}"]}}}},)"
      R"("required":["id","type","data"]}})",
      i / alike, i, i);
}

std::string union_of(const char* keyword, int n, int alike = 1) {
  return fmt::format(R"({{"{}":[{}]}})", keyword,
                     list_of(n, [&](int i) { return event(i, alike); }));
}

// As generators of OpenAPI write it: each event is the base and what is its own, and the base tells
// the types of the members.
std::string union_of_derived(int n) {
  return R"({"$defs":{"base":{"type":"object","properties":{"type":{"type":"string"},"id":{"type":"integer"}},"required":["type","id"]},)" +
         list_of(
             n,
             [](int i) {
               return fmt::format(
                   R"("e{0}":{{"allOf":[{{"$ref":"#/$defs/base"}},{{"properties":{{"type":{{"enum":["event.{0}"]}},"value{0}":{{"type":"string"}}}}}}]}})",
                   i);
             }) +
         R"(},"oneOf":[)" +
         list_of(n, [](int i) { return fmt::format(R"({{"$ref":"#/$defs/e{}"}})", i); }) + "]}";
}

struct CompiledUnion {
  std::shared_ptr<const Grammar> grammar;
  uint64_t steps = 0;
};

CompiledUnion compile_union(const std::string& schema, bool any_order = false) {
  CompiledUnion compiled;
  auto grammar = Grammar::compile({SpecKind::kJsonSchema, schema, {.any_member_order = any_order}},
                                  small_vocabulary(), {}, &compiled.steps);
  EXPECT_TRUE(grammar) << grammar.error().message << ": " << schema.substr(0, 200);
  if (grammar) compiled.grammar = *std::move(grammar);
  return compiled;
}

bool takes(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.append_bytes(text) && matcher.may_end();
}

// The operations of a text's masks, one for each byte, and of following it.
uint64_t work_of(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().mask_words());
  for (const char c : text) {
    matcher.fill_mask(mask);
    EXPECT_TRUE(matcher.append_bytes({&c, 1})) << text;
  }
  EXPECT_EQ(matcher.failure(), "");
  return matcher.work();
}

constexpr const char* kFirst = R"({"id": 1, "type": "event.7", "data": {"value7": "x"}})";
constexpr const char* kWrongData = R"({"id": 1, "type": "event.7", "data": {"value8": "x"}})";
constexpr const char* kNoKind = R"({"id": 1, "type": "event.x", "data": {"value7": "x"}})";

TEST(Unions, OfManyObjectsCompile) {
  for (const char* keyword : {"oneOf", "anyOf"}) {
    uint64_t steps_of_300 = 0;
    for (const int n : {300, 1000}) {
      const CompiledUnion one = compile_union(union_of(keyword, n));
      ASSERT_TRUE(one.grammar) << keyword << n;
      EXPECT_TRUE(takes(one.grammar, kFirst)) << keyword << n;
      EXPECT_FALSE(takes(one.grammar, kWrongData)) << keyword << n;
      EXPECT_FALSE(takes(one.grammar, kNoKind)) << keyword << n;
      EXPECT_LT(one.grammar->memory(), static_cast<size_t>(n) << 16) << keyword << n;
      if (n == 300) steps_of_300 = one.steps;
      EXPECT_LT(one.steps, 6 * steps_of_300) << keyword;  // linear would be 3.3
    }
  }
}

TEST(Unions, OfObjectsThatAreDerivedCompile) {
  for (const int n : {300, 1000}) {
    const CompiledUnion one = compile_union(union_of_derived(n));
    ASSERT_TRUE(one.grammar) << n;
    EXPECT_TRUE(takes(one.grammar, R"({"type":"event.7","id":1,"value7":"x"})"));
    EXPECT_FALSE(takes(one.grammar, R"({"type":"event.7","id":1,"value7":2})"));
    EXPECT_FALSE(takes(one.grammar, R"({"type":"event.a","id":1})"));
  }
}

// Two of each kind, which their data tells apart: a value of both is none.
TEST(Unions, OfObjectsOfWhichSomeShareTheirKindCompile) {
  const CompiledUnion one = compile_union(union_of("oneOf", 300, 2));
  ASSERT_TRUE(one.grammar);
  EXPECT_TRUE(takes(one.grammar, R"({"id":1,"type":"event.7","data":{"value14":"x"}})"));
  EXPECT_TRUE(takes(one.grammar, R"({"id":1,"type":"event.7","data":{"value15":"x"}})"));
  EXPECT_FALSE(
      takes(one.grammar, R"({"id":1,"type":"event.7","data":{"value14":"x","value15":"x"}})"));
  EXPECT_FALSE(takes(one.grammar, R"({"id":1,"type":"event.7","data":{"value16":"x"}})"));
}

// Each requires a member that all others forbid.
TEST(Unions, OfObjectsThatForbidTheMembersOfOthersCompile) {
  const auto closed = [](int i) {
    return fmt::format(
        R"({{"properties":{{"name":{{"type":"string"}},"kind{0}":{{"type":"integer"}},"more":{{"maxLength":{0}}}}},)"
        R"("required":["kind{0}"],"additionalProperties":false}})",
        i);
  };
  const CompiledUnion one =
      compile_union(R"({"type":"object","oneOf":[)" + list_of(100, closed) + "]}");
  ASSERT_TRUE(one.grammar);
  EXPECT_TRUE(takes(one.grammar, R"({"name":"a","kind3":1,"more":"abc"})"));
  EXPECT_FALSE(takes(one.grammar, R"({"name":"a","kind3":1,"more":"abcd"})"));
  EXPECT_FALSE(takes(one.grammar, R"({"kind3":1,"kind4":1})"));
}

TEST(Unions, InAnyOrderOfMembersCompile) {
  const CompiledUnion one = compile_union(union_of("oneOf", 300), true);
  ASSERT_TRUE(one.grammar);
  EXPECT_TRUE(takes(one.grammar, R"({"data":{"value7":"x"},"type":"event.7","id":3})"));
  EXPECT_FALSE(takes(one.grammar, R"({"data":{"value7":"x"},"type":"event.8","id":3})"));
}

TEST(Unions, TakeLittleWorkToFollow) {
  for (const int n : {300, 1000}) {
    const CompiledUnion one = compile_union(union_of("oneOf", n));
    ASSERT_TRUE(one.grammar) << n;
    EXPECT_LT(work_of(one.grammar, kFirst), static_cast<uint64_t>(n) * 1000) << n;
  }
}

}  // namespace
}  // namespace penstock::grammar
