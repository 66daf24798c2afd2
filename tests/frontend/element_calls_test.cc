// Arguments that are elements of their names (MiniMax M3): types by the schema of what is in lists
// and objects, and the grammar that writes them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "frontend/chat/parameter_schemas.h"
#include "frontend/chat/reply_grammar.h"
#include "frontend/parse_reply.h"
#include "grammar/grammar.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

const ToolParserRow& m3() { return *find_tool_parser("minimax_m3"); }

// Text in which every < of a tag stands for the mark that tags begin with.
std::string tagged(std::string_view short_text) {
  std::string text;
  for (size_t i = 0; i < short_text.size(); ++i) {
    if (short_text[i] == '<') text += "]<]minimax[>[";
    text += short_text[i];
  }
  return text;
}

std::string call_of(std::string_view arguments) {
  return tagged(
      fmt::format("<tool_call>\n<invoke name=\"f\">{}</invoke>\n</tool_call>", arguments));
}

Json tools_with(const char* properties) {
  return Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", "f"},
          {"strict", true},
          {"parameters", Json::parse(fmt::format(R"({{"type": "object", "properties": {},
              "additionalProperties": false, "$defs": {{"node": {{"type": "object", "properties": {{"name": {{"type": "string"}},
              "nodes": {{"type": "array", "items": {{"$ref": "#/$defs/node"}}}}}}}}}}}})",
                                                 properties))}}}}});
}

const Json& order() {
  static const Json tools = tools_with(R"({
    "user": {"type": "integer"}, "urgent": {"type": "boolean"}, "note": {"type": "string"},
    "address": {"type": "object", "properties": {"city": {"type": "string"}, "floor": {"type": "integer"}}},
    "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "number"}}}},
    "scores": {"type": "object", "additionalProperties": {"type": "integer"}},
    "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
    "pair": {"type": "array", "items": {"type": "integer"}, "minItems": 2},
    "tree": {"$ref": "#/$defs/node"},
    "maybe": {"type": ["string", "null"]}})");
  return tools;
}

// The arguments of the one call, which are the same however the text is cut.
std::string arguments_in(const std::string& text, const Json& tools = order()) {
  const auto types = std::make_shared<const ParameterTypes>(parameter_types(tools, true));
  std::string first;
  for (const size_t step : {text.size(), size_t{1}, size_t{2}, size_t{7}, size_t{31}}) {
    const auto parser = std::move(*make_reply_parser({m3().name, "", false, types}));
    ReplyPart all;
    for (size_t at = 0; at < text.size(); at += step)
      all.append(parser->push(std::string_view(text).substr(at, step)));
    all.append(parser->finish());
    EXPECT_EQ(all.content, "") << text;
    if (all.calls.size() != 1) return fmt::format("{} calls", all.calls.size());
    if (first.empty()) first = all.calls[0].arguments;
    EXPECT_EQ(all.calls[0].arguments, first) << text << ", " << step;
  }
  return first;
}

TEST(ElementCalls, ValuesHaveTheTypesOfTheirSchemas) {
  const std::pair<const char*, const char*> cases[] = {
      {"<user>42</user><urgent>true</urgent><note>42</note>",
       R"({"user":42,"urgent":true,"note":"42"})"},
      {"<address><city>007</city><floor>3</floor></address>",
       R"({"address":{"city":"007","floor":3}})"},
      {"<lines><item><sku>1</sku><n>2.50</n></item>\n<item><sku>true</sku></item></lines>",
       R"({"lines":[{"sku":"1","n":2.50},{"sku":"true"}]})"},
      {"<scores><a>1</a><b>2</b></scores>", R"({"scores":{"a":1,"b":2}})"},
      {"<tags><item>1</item><item>null</item></tags>", R"({"tags":["1","null"]})"},
      {"<tags>null</tags>", R"({"tags":null})"},
      {"<tree><name>1</name><nodes><item><name>2</name><nodes><item><name>3</name></item></nodes>"
       "</item></nodes></tree>",
       R"({"tree":{"name":"1","nodes":[{"name":"2","nodes":[{"name":"3"}]}]}})"},
      {"<maybe>null</maybe>", R"({"maybe":null})"},
      {"<maybe>12</maybe>", R"({"maybe":"12"})"},
      {"<note>\n a\n</note>", R"({"note":"\n a\n"})"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(arguments_in(call_of(text)), expected);
}

TEST(ElementCalls, WhatIsEmptyIsOfItsType) {
  EXPECT_EQ(arguments_in(call_of("<lines></lines><address>\n</address><note></note><x></x>")),
            R"({"lines":[],"address":{},"note":"","x":""})");
}

TEST(ElementCalls, ListsAndObjectsMayBeJson) {
  EXPECT_EQ(arguments_in(call_of("<lines>[{\"sku\": 1}]</lines><address>{\"a\": []}</address>")),
            R"({"lines":[{"sku":1}],"address":{"a":[]}})");
}

TEST(ElementCalls, WithoutASchemaElementsSayWhatTheyAre) {
  EXPECT_EQ(arguments_in(call_of("<x><item>1</item><item>a</item></x><y><a>true</a><b>c</b></y>"
                                 "<z><a>1</a><a>2</a><a>3</a></z>")),
            R"({"x":[1,"a"],"y":{"a":true,"b":"c"},"z":{"a":[1,2,3]}})");
  // A list's items may have any name, and an object may have members called `item`.
  EXPECT_EQ(arguments_in(call_of("<lines><line><n>1</n></line></lines>"
                                 "<address><item>1</item></address>")),
            R"({"lines":[{"n":1}],"address":{"item":1}})");
  EXPECT_EQ(arguments_in(call_of("<address>near <city>Ulm</city></address>")),
            R"({"address":{"city":"Ulm","$text":"near "}})");
}

TEST(ElementCalls, ElementsOfOneNameMayStandInsideOfEachOther) {
  EXPECT_EQ(arguments_in(call_of("<a><a><a>1</a></a></a>")), R"({"a":{"a":{"a":1}}})");
}

TEST(ElementCalls, StringsMayHaveTags) {
  EXPECT_EQ(arguments_in(call_of("<note><b>bold</b></note>")),
            "{\"note\":\"" + tagged("<b>bold</b>") + "\"}");
  EXPECT_EQ(arguments_in(call_of("<address><city><b></city></address>")),
            "{\"address\":{\"city\":\"" + tagged("<b>") + "\"}}");
}

TEST(ElementCalls, MissingMarksAreMadeUpFor) {
  EXPECT_EQ(arguments_in(call_of("<address><city>Ulm<floor>3</address><user>1</user>")),
            "{\"address\":{\"city\":\"" + tagged("Ulm<floor>3") + "\"},\"user\":1}");
  EXPECT_EQ(arguments_in(tagged("<tool_call><invoke name=\"f\"><note>a</invoke></tool_call>")),
            R"({"note":"a"})");
  EXPECT_EQ(arguments_in(tagged("<invoke name=\"f\"><note>a</note></tool_call>")),
            R"({"note":"a"})");
}

// Work is linear in the reply, and so is depth bounded.
TEST(ElementCalls, RepliesThatNestOrRepeatALotAreRead) {
  std::string deep, wide;
  for (int i = 0; i < 20'000; ++i) {
    deep += tagged("<a>");
    wide += tagged(fmt::format("<k{0}>{0}</k{0}>", i));
  }
  const std::string name = tagged("<invoke name=\"f\">");
  const auto types = std::make_shared<const ParameterTypes>(parameter_types(order(), true));
  for (const std::string& text : {deep, tagged("<x>") + wide + tagged("</x></invoke>"),
                                  tagged("<x>") + tagged(std::string(20'000, '<'))}) {
    const auto parser = std::move(*make_reply_parser({m3().name, "", false, types}));
    const std::clock_t begin = std::clock();
    ReplyPart all = parser->push(name);
    for (size_t at = 0; at < text.size(); at += 4)
      all.append(parser->push(std::string_view(text).substr(at, 4)));
    all.append(parser->finish());
    EXPECT_EQ(all.calls.size(), 1u);
    EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC);
  }
}

// A node of two nodes: as elements it would have 2^16 members.
Json two_of_itself() {
  Json tools = tools_with(
      R"({"a": {"$ref": "#/$defs/two"}, "b": {"type": "array", "items": {"type": "integer"}}})");
  tools[0]["function"]["parameters"]["$defs"]["two"] = Json::parse(
      R"({"type": "object", "properties": {"l": {"$ref": "#/$defs/two"}, "r": {"$ref": "#/$defs/two"}, "n": {"type": "string"}}})");
  return tools;
}

std::optional<StructuredOutputs> forced(const Json& tools, const char* prompt = "") {
  auto made = reply_constraint({&tools, {ToolChoice::Kind::kRequired}, false, {}},
                               {&m3(), find_reasoning("minimax_m3"), "", prompt});
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? *made : std::nullopt;
}

bool allowed(const StructuredOutputs& outputs, const std::string& text) {
  static const auto vocabulary = grammar::Vocabulary::make(std::vector<std::string>{"x", ""}, {1});
  auto compiled = grammar::Grammar::compile(
      {.kind = grammar::SpecKind::kStructuralTag, .text = outputs.structural_tag}, vocabulary);
  EXPECT_TRUE(compiled) << (compiled ? "" : compiled.error().message);
  grammar::Matcher matcher(*compiled);
  return matcher.append_bytes(text) && matcher.may_end();
}

TEST(ElementCalls, TheGrammarWritesElements) {
  const auto outputs = forced(order()).value();
  const auto ok = [&](const char* arguments) { return allowed(outputs, call_of(arguments)); };
  EXPECT_TRUE(ok("<user>42</user><address><city>Ulm</city><floor>3</floor></address>"));
  EXPECT_TRUE(ok("<lines><item><sku>1</sku><n>2.5</n></item><item><sku>x</sku></item></lines>"));
  EXPECT_TRUE(ok("<lines></lines><tags><item>a</item></tags>"));
  EXPECT_TRUE(ok("<tags>null</tags>"));
  EXPECT_TRUE(ok("<tree><name>a</name><nodes><item><name>b</name></item></nodes></tree>"));
  EXPECT_FALSE(ok("<user>many</user>"));
  EXPECT_FALSE(ok("<address><street>x</street></address>"));
  EXPECT_FALSE(ok("<lines>[]</lines>"));
  EXPECT_FALSE(ok("<lines><item><n>a</n></item></lines>"));
  EXPECT_FALSE(ok("<note><b>x</b></note>"));
  // What elements cannot hold is JSON.
  EXPECT_TRUE(ok("<scores>{\"a\": 1}</scores><pair>[1, 2]</pair>"));
  EXPECT_FALSE(ok("<scores>{\"a\": \"b\"}</scores>"));
  EXPECT_FALSE(ok("<pair>[1]</pair>"));
  EXPECT_FALSE(ok("<pair><item>1</item><item>2</item></pair>"));
}

TEST(ElementCalls, ASchemaThatIsPartOfItselfTwiceIsBounded) {
  const Json tools = two_of_itself();
  const std::clock_t begin = std::clock();
  EXPECT_EQ(arguments_in(call_of("<a><l><r><n>1</n></r></l></a>"), tools),
            R"({"a":{"l":{"r":{"n":"1"}}}})");
  const auto outputs = forced(tools).value();
  EXPECT_TRUE(allowed(outputs, call_of("<a>{\"l\": {\"n\": \"1\"}}</a><b><item>1</item></b>")));
  EXPECT_FALSE(allowed(outputs, call_of("<a>{\"l\": {\"n\": 1}}</a>")));
  EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC);
}

// A function of these parameters, whose values refer to the definition `x`.
Json referring(Json properties, Json x) {
  Json parameters = {{"type", "object"},
                     {"properties", std::move(properties)},
                     {"additionalProperties", false},
                     {"$defs", {{"x", std::move(x)}}}};
  Json function = {{"name", "f"}, {"strict", true}, {"parameters", std::move(parameters)}};
  return Json::array({{{"type", "function"}, {"function", std::move(function)}}});
}

// What many parameters or alternatives refer to is not walked again without bounds.
TEST(ElementCalls, WorkIsBoundedWhateverRefersToWhat) {
  const Json x = {{"$ref", "#/$defs/x"}};
  const Json::array_t refs(15'000, x);
  Json many = Json::object(), few = Json::object();
  for (int i = 0; i < 20'000; ++i) many[fmt::format("p{}", i)] = {{"type", "string"}};
  for (int i = 0; i < 4'000; ++i) few[fmt::format("p{}", i)] = x;
  const Json alternatives =
      referring({{"a", {{"anyOf", refs}}}}, {{"type", "object"}, {"properties", many}});
  const Json names = referring(few, {{"type", "object"},
                                     {"properties", {{"a", {{"type", "number"}}}}},
                                     {"required", Json::array_t(200'000, "a")}});
  Json::array_t none(200'000, Json(false));
  none.push_back({{"type", "array"}, {"items", {{"type", "number"}}}});
  const Json impossible = referring(few, {{"anyOf", std::move(none)}});
  const std::clock_t begin = std::clock();
  for (const Json* tools : {&alternatives, &names, &impossible}) {
    (void)parameter_types(*tools, true);
    (void)reply_constraint({tools, {ToolChoice::Kind::kRequired}, false, {}},
                           {&m3(), find_reasoning("minimax_m3"), "", ""});
  }
  EXPECT_LT(std::clock() - begin, 20 * CLOCKS_PER_SEC);
}

TEST(ElementCalls, ThoughtsOrTheirClosingMarkComeFirst) {
  const std::string call = call_of("<user>1</user>");
  const auto free = forced(order(), "]~b]ai\n").value();
  EXPECT_TRUE(allowed(free, call));
  EXPECT_TRUE(allowed(free, "</mm:think>" + call));
  EXPECT_TRUE(allowed(free, "<mm:think>Hm.</mm:think>" + call));
  EXPECT_FALSE(allowed(free, "Hm." + call));
  const auto begun = forced(order(), "]~b]ai\n<mm:think>").value();
  EXPECT_TRUE(allowed(begun, "Hm.</mm:think>" + call));
  EXPECT_FALSE(allowed(begun, call));
  const auto over = forced(order(), "]~b]ai\n</mm:think>").value();
  EXPECT_TRUE(allowed(over, call));
  EXPECT_FALSE(allowed(over, "</mm:think>" + call));
}

TEST(ElementCalls, AParameterCannotBeCalledAsTheMarkAroundCallsIs) {
  const Json tools = tools_with(R"({"tool_call": {"type": "string"}})");
  const auto refused = reply_constraint({&tools, {ToolChoice::Kind::kRequired}, false, {}},
                                        {&m3(), nullptr, "", ""});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("properties.tool_call"));
}

}  // namespace
}  // namespace penstock
