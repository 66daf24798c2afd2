// Replies drawn at random under the grammar of each call format, read back by its parser: what the
// grammar allows are calls of the tools with arguments that obey, however the text is cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "frontend/chat/call_stream.h"
#include "frontend/chat/exact_json.h"
#include "frontend/chat/harmony.h"
#include "frontend/chat/parameter_schemas.h"
#include "frontend/chat/reply_grammar.h"
#include "frontend/parse_reply.h"
#include "grammar/grammar.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ToolChoice::Kind;
using ::testing::HasSubstr;

const Json kFourTools = Json::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "strict": true, "parameters": {"type": "object", "properties": {
    "city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
    "unit": {"enum": ["C", "F"]}, "exact": {"type": "boolean"}}, "required": ["city", "days"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "search", "strict": true, "parameters": {"type": "object", "properties": {
    "query": {"anyOf": [{"type": "string", "pattern": "^[a-z ]{1,8}$"}, {"type": "null"}]},
    "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 3},
    "near": {"type": "object", "properties": {"x": {"type": "number"}, "ok": {"type": "boolean"}}, "required": ["x"], "additionalProperties": false}},
    "required": ["query", "tags"], "additionalProperties": false, "$defs": {"tag": {"type": ["string", "integer"]}}}}},
  {"type": "function", "function": {"name": "now", "strict": true, "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}},
  {"type": "function", "function": {"name": "note", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}}
])");

// A small vocabulary in which all marks of all formats are special tokens, or none is.
struct Words {
  explicit Words(bool special_marks) {
    std::vector<std::pair<std::string, TokenId>> special;
    for (int c = 0x20; c < 0x7f; ++c) texts.emplace_back(1, static_cast<char>(c));
    for (const char* more : {"\n", "\t", "é", "ab", " the", "\"}", "\\u00", "{\"", "\":", "\", \"",
                             "</", "12", "e", "｜", "▁"})
      texts.emplace_back(more);
    // What ends values, so that a walk can be led to its end.
    first_closing = texts.size();
    for (const char* end : {"\n</parameter>\n",
                            "</parameter>\n",
                            "</arg_value>\n",
                            "</arg_value>",
                            "</function>",
                            "\n</function>",
                            "</tool_call>",
                            "</invoke>",
                            "\n</minimax:tool_call>",
                            "</tool_calls>",
                            "\n</tool_calls>",
                            "<|\"|>",
                            "<escape>",
                            "}<tool_call|>",
                            "}<end_function_call>",
                            "</｜DSML｜parameter>\n",
                            "<|END_ACTION|>",
                            "</arg_value:opensource>\n",
                            "</tool_call:opensource>",
                            "<|close|>argument<|sep|>",
                            "<|close|>call<|sep|>",
                            "</longcat_arg_value>\n",
                            "</longcat_tool_call>",
                            "<|tool_arg:end|>\n",
                            "<|tool_call:end|>",
                            "</param>",
                            "</steptml:parameter>\n",
                            "</steptml:invoke>",
                            "]<]minimax[>[</",
                            "</atem:parameter>\n",
                            "</atem:invoke>",
                            "]<]minimax[>[</invoke>",
                            "<|end|><|start|>assistant<|channel|>final<|message|>",
                            "<|end|><|start|>assistant<|channel|>commentary to=functions."})
      texts.emplace_back(end);
    last_closing = texts.size();
    if (special_marks) {
      for (const char* mark : {"<tool_call>",
                               "</tool_call>",
                               "<seed:tool_call>",
                               "[TOOL_CALLS]",
                               "[ARGS]",
                               "[CALL_ID]",
                               "<｜tool▁calls▁begin｜>",
                               "<｜tool▁call▁begin｜>",
                               "<｜tool▁sep｜>",
                               "<｜tool▁call▁end｜>",
                               "<｜tool▁calls▁end｜>",
                               "<|tool_call|>",
                               "<|START_ACTION|>",
                               "<|END_ACTION|>",
                               "<|channel|>",
                               "<|message|>",
                               "<|start|>",
                               "<|end|>",
                               "<|constrain|>",
                               "<|tool_call_begin|>",
                               "]<]minimax[>[",
                               "<|function_call|>",
                               "<think>",
                               "</think>"}) {
        special.emplace_back(mark, static_cast<TokenId>(texts.size()));
        names[static_cast<TokenId>(texts.size())] = mark;
        texts.emplace_back("");
      }
    }
    end = static_cast<TokenId>(texts.size());
    texts.emplace_back("");
    special.emplace_back("<end>", end);
    vocabulary = grammar::Vocabulary::make(texts, {end}, std::move(special));
  }

  std::vector<std::string> texts;
  std::map<TokenId, std::string> names;  // of special tokens
  size_t first_closing = 0, last_closing = 0;
  TokenId end = 0;
  std::shared_ptr<const grammar::Vocabulary> vocabulary;
};

const Words& words(bool special_marks) {
  static const Words without(false), with(true);
  return special_marks ? with : without;
}

// Tokens that are allowed, drawn at random; the longer the text is, the more those that end
// something.
std::string walk(const std::shared_ptr<const grammar::Grammar>& grammar, const Words& words,
                 std::mt19937& random) {
  grammar::Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().mask_words());
  std::string text;
  constexpr int kMost = 3000;
  for (int n = 0; n < kMost; ++n) {
    matcher.fill_mask(mask);
    std::vector<TokenId> allowed, closing;
    for (size_t id = 0; id < words.texts.size(); ++id) {
      if ((mask[id / 32] >> (id % 32) & 1) == 0) continue;
      allowed.push_back(static_cast<TokenId>(id));
      const std::string& word = words.texts[id];
      const bool ends = word.empty() || word == "\"" || word == "}" || word == "]" || word == ")" ||
                        word == "<" || word == "/" ||
                        (id >= words.first_closing && id < words.last_closing);
      if (ends) closing.push_back(static_cast<TokenId>(id));
    }
    if (allowed.empty()) {
      ADD_FAILURE() << "nothing may follow: " << text;
      return text;
    }
    const bool finish = !closing.empty() && static_cast<int>(random() % 100) < n;
    const auto& from = finish ? closing : allowed;
    TokenId token = from[random() % from.size()];
    if (matcher.may_end() && (n > 30 || random() % 4 == 0)) token = words.end;
    EXPECT_TRUE(matcher.append(token)) << text;
    if (token == words.end) return text;
    const auto name = words.names.find(token);
    text += name == words.names.end() ? words.texts[token] : name->second;
  }
  ADD_FAILURE() << "no end after " << kMost << " tokens: " << text;
  return text;
}

struct Asked {
  Json tools = kFourTools;
  ToolChoice choice = {};
  bool one_call = false;
  std::optional<StructuredOutputs> answer = {};
  std::string chat_template = {}, prompt = {}, reasoning = {};
};

std::optional<StructuredOutputs> constraint(const ToolParserRow& row, const Asked& asked) {
  auto made =
      reply_constraint({&asked.tools, asked.choice, asked.one_call, asked.answer},
                       {&row, find_reasoning(asked.reasoning), asked.chat_template, asked.prompt});
  EXPECT_TRUE(made) << row.name << ": " << (made ? "" : made.error().message);
  return made ? *made : std::nullopt;
}

std::shared_ptr<const grammar::Grammar> compiled(const StructuredOutputs& outputs,
                                                 const Words& words) {
  auto made = grammar::Grammar::compile(
      {.kind = grammar::SpecKind::kStructuralTag, .text = outputs.structural_tag},
      words.vocabulary);
  EXPECT_TRUE(made) << (made ? "" : made.error().where + ": " + made.error().message) << "\n"
                    << outputs.structural_tag;
  return made ? *made : nullptr;
}

ReplyPart parsed(const ToolParserRow& row, const Asked& asked, const std::string& text,
                 std::mt19937& random) {
  const ReplyParserOptions options{row.name, asked.reasoning,
                                   prompt_opens_reasoning(asked.prompt, asked.reasoning),
                                   std::make_shared<const ParameterTypes>(parameter_types(
                                       asked.tools, row.format.needs_inner_types()))};
  const ReplyPart whole = parse_reply(**make_reply_parser(options), text);
  const auto parser = std::move(*make_reply_parser(options));
  ReplyPart pieces;
  for (size_t i = 0; i < text.size();) {
    const size_t n = 1 + random() % 9;
    pieces.append(parser->push(std::string_view(text).substr(i, n)));
    i += n;
  }
  pieces.append(parser->finish());
  EXPECT_EQ(pieces, whole) << row.name << ": " << text;
  return whole;
}

bool obeys(const std::string& schema, const std::string& text) {
  static const auto vocabulary = grammar::Vocabulary::make(std::vector<std::string>{"x", ""}, {1});
  grammar::Matcher matcher(grammar::Grammar::compile({.text = schema}, vocabulary).value());
  return matcher.append_bytes(text) && matcher.may_end();
}

// With the members in the order of the properties.
std::string in_order(const Json& schema, const std::string& arguments) {
  Json left = parse_exact(arguments).value(), ordered = Json::object();
  for (const auto& [name, value] : schema["properties"].items()) {
    if (left.contains(name)) ordered[name] = left[name];
    left.erase(name);
  }
  ordered.update(left);
  return dump_exact(ordered);
}

// Every call is one of a tool that may be called, and obeys its schema if it is strict.
void check_calls(const ToolParserRow& row, const Asked& asked, const ReplyPart& reply,
                 const std::string& text) {
  for (const ToolCall& call : reply.calls) {
    const auto tool = std::ranges::find_if(
        asked.tools, [&](const Json& t) { return t["function"]["name"] == call.name; });
    ASSERT_TRUE(tool != asked.tools.end()) << row.name << " called " << call.name << ": " << text;
    const auto& names = asked.choice.names;
    EXPECT_TRUE(names.empty() || std::ranges::find(names, call.name) != names.end())
        << row.name << ": " << text;
    if (!(*tool)["function"].contains("strict")) continue;
    const Json& schema = (*tool)["function"]["parameters"];
    EXPECT_TRUE(obeys(schema.dump(), in_order(schema, call.arguments)))
        << row.name << ": " << call.arguments << "\n"
        << text;
  }
}

// All writings of a row, by templates that ask for them.
std::vector<std::string> templates_of(const ToolParserRow& row) {
  std::vector<std::string> templates;
  for (const CallWriting& writing : row.format.written) templates.push_back(writing.hint);
  if (templates.empty()) templates.emplace_back();
  return templates;
}

class Formats : public ::testing::TestWithParam<const ToolParserRow*> {
 protected:
  // Draws replies for every writing and both vocabularies.
  void draw(Asked asked, const std::function<void(const ReplyPart&, const std::string&)>& check,
            int n = 6) {
    const ToolParserRow& row = *GetParam();
    std::mt19937 random(7);
    for (const std::string& hint : templates_of(row)) {
      asked.chat_template = hint;
      const auto outputs = constraint(row, asked);
      ASSERT_TRUE(outputs) << row.name;
      for (const bool special : {false, true}) {
        const auto grammar = compiled(*outputs, words(special));
        ASSERT_NE(grammar, nullptr);
        for (int i = 0; i < n; ++i) {
          const std::string text = walk(grammar, words(special), random);
          const ReplyPart reply = parsed(row, asked, text, random);
          check_calls(row, asked, reply, text);
          check(reply, text);
          if (HasFailure()) return;
        }
      }
    }
  }
};

TEST_P(Formats, RequiredCallsAreNothingButCalls) {
  size_t n_calls = 0;
  draw(
      {.choice = {Kind::kRequired}},
      [&](const ReplyPart& reply, const std::string& text) {
        EXPECT_FALSE(reply.calls.empty()) << text;
        const bool space = GetParam()->format.keeps_space;  // between calls
        EXPECT_EQ(space ? std::string(without_space(reply.content)) : reply.content, "") << text;
        n_calls += reply.calls.size();
      },
      12);
  EXPECT_GT(n_calls, 0u);
}

TEST_P(Formats, OneCallOnly) {
  draw({.choice = {Kind::kRequired}, .one_call = true},
       [](const ReplyPart& reply, const std::string& text) {
         EXPECT_EQ(reply.calls.size(), 1u) << text;
       });
}

TEST_P(Formats, TheNamedToolIsCalledOnce) {
  draw({.choice = {Kind::kNamed, {"search"}}}, [](const ReplyPart& reply, const std::string& text) {
    ASSERT_EQ(reply.calls.size(), 1u) << text;
    EXPECT_EQ(reply.calls[0].name, "search");
  });
}

TEST_P(Formats, AllowedToolsOnly) {
  draw({.choice = {Kind::kRequired, {"now", "note"}}},
       [](const ReplyPart& reply, const std::string& text) {
         EXPECT_FALSE(reply.calls.empty()) << text;
       });
}

TEST_P(Formats, TextOrStrictCalls) {
  draw({}, [](const ReplyPart&, const std::string&) {});
}

TEST_P(Formats, AnAnswerOfAFormOrCalls) {
  const std::string schema =
      R"({"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"],"additionalProperties":false})";
  size_t n_answers = 0;
  draw(
      {.answer = StructuredOutputs{.json = schema}},
      [&](const ReplyPart& reply, const std::string& text) {
        if (!reply.calls.empty()) return;
        ++n_answers;
        EXPECT_TRUE(obeys(schema, reply.content)) << text;
      },
      12);
  EXPECT_GT(n_answers, 0u);
}

TEST_P(Formats, OneArgumentThatIsATextOfAGrammar) {
  const char* definitions[][2] = {
      {"lark", "start: \"+\\\"\" LINE (\"\\n\" LINE)*\nLINE: /[a-c\"\\\\]{1,6}/"},
      {"regex", R"(\+"[a-c"\\]{1,6}(\n[a-c"\\]{1,6})*)"}};
  const std::regex expected(R"(\+"[a-c"\\]{1,6}(\n[a-c"\\]{1,6})*)");
  for (const auto& [syntax, definition] : definitions) {
    Json function = {{"name", "edit"}, {"parameters", {{"type", "object"}}}};
    function["grammar"] = {{"syntax", syntax}, {"definition", definition}};
    const Json tools = Json::array({{{"type", "function"}, {"function", function}}});
    draw(
        {.tools = tools, .choice = {Kind::kRequired}},
        [&](const ReplyPart& reply, const std::string& text) {
          EXPECT_FALSE(reply.calls.empty()) << text;
          for (const ToolCall& call : reply.calls) {
            const Json arguments = Json::parse(call.arguments);
            ASSERT_EQ(arguments.size(), 1u) << text;
            const std::string input = arguments["input"];
            EXPECT_TRUE(std::regex_match(input, expected)) << text;
          }
        },
        12);
  }
}

std::vector<const ToolParserRow*> rows() {
  std::vector<const ToolParserRow*> all;
  for (const ToolParserRow& row : tool_parsers()) all.push_back(&row);
  return all;
}

INSTANTIATE_TEST_SUITE_P(CallGrammar, Formats, ::testing::ValuesIn(rows()), [](const auto& info) {
  return std::regex_replace(std::string(info.param->name), std::regex("[^a-zA-Z0-9]"), "_");
});

const ToolParserRow& hermes() { return *find_tool_parser("hermes"); }

bool allows(const StructuredOutputs& outputs, const std::string& text) {
  grammar::Matcher matcher(compiled(outputs, words(false)));
  return matcher.append_bytes(text) && matcher.may_end();
}

TEST(CallGrammar, WhatTheTemplateShows) {
  const auto outputs = constraint(hermes(), {.choice = {Kind::kRequired}}).value();
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(allows(outputs, call));
  EXPECT_TRUE(allows(outputs, "\n\n" + call + "\n" + call));
  EXPECT_FALSE(allows(outputs, "Well: " + call));
  EXPECT_FALSE(allows(outputs, ""));
  EXPECT_FALSE(
      allows(outputs, "<tool_call>\n{\"name\": \"later\", \"arguments\": {}}\n</tool_call>"));
  const auto free = constraint(hermes(), {}).value();
  EXPECT_TRUE(allows(free, "Well: \n" + call));
  EXPECT_TRUE(allows(free, "Well, <tool is no mark."));
  EXPECT_FALSE(allows(free, "Well: <tool_call>"));
}

TEST(CallGrammar, ReasoningIsFree) {
  Asked asked{
      .choice = {Kind::kNamed, {"now"}}, .prompt = "<|assistant|><think>\n", .reasoning = "think"};
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const auto inside = constraint(hermes(), asked).value();
  EXPECT_TRUE(allows(inside, "so <tool_call> it is\n</think>\n\n" + call));
  EXPECT_FALSE(allows(inside, call));
  asked.prompt = "<|assistant|>";
  const auto may = constraint(hermes(), asked).value();
  EXPECT_TRUE(allows(may, call));
  EXPECT_TRUE(allows(may, "<think>\nhm\n</think>\n\n" + call));
  asked.prompt = "<|assistant|><think>\n\n</think>\n\n";
  const auto over = constraint(hermes(), asked).value();
  EXPECT_TRUE(allows(over, call));
  EXPECT_FALSE(allows(over, "<think>hm</think>" + call));
}

// A reply that continues a mark of the prompt names whom it is for: the user or a tool.
TEST(CallGrammar, AMarkThatThePromptEndsWithIsNotWrittenAgain) {
  const std::tuple<const char*, const char*, std::string, std::string> formats[] = {
      {"functionary_v3", ">>>", "all\n", "now\n{}"},
      {"functionary_v2", "<|recipient|>", "all\n<|content|>", "now\n<|content|>{}"},
      {"muse_glimmer", "<|start|>assistant", " to=user<|message|>",
       " to=now<|message|><atem:function_calls>\n<atem:invoke name=\"now\">\n</atem:invoke>"},
  };
  for (const auto& [name, mark, all, call] : formats) {
    const ToolParserRow& row = *find_tool_parser(name);
    const std::string separator = row.format.written[0].separator, end = row.format.written[0].end;
    Asked asked{.choice = {Kind::kRequired}, .prompt = std::string("user: hi\n") + mark};
    const auto required = constraint(row, asked).value();
    EXPECT_TRUE(allows(required, call + end)) << name;
    EXPECT_TRUE(allows(required, call + separator + mark + call + end)) << name;
    EXPECT_FALSE(allows(required, mark + call + end)) << name;
    EXPECT_FALSE(allows(required, all + "Hello.")) << name;
    asked.choice = {};
    const auto free = constraint(row, asked).value();
    EXPECT_TRUE(allows(free, call + end)) << name;
    EXPECT_TRUE(allows(free, all + "Hello.")) << name;
    EXPECT_FALSE(allows(free, "Hello.")) << name;
    asked.answer = StructuredOutputs{.json = R"({"type":"integer"})"};
    const auto answer = constraint(row, asked).value();
    EXPECT_TRUE(allows(answer, all + "42")) << name;
    EXPECT_TRUE(allows(answer, call + end)) << name;
    EXPECT_FALSE(allows(answer, "42")) << name;
  }
}

// Behind thoughts the mark is written again.
TEST(CallGrammar, ThoughtsMayComeBehindAMarkOfThePrompt) {
  const ToolParserRow& row = *find_tool_parser("muse_glimmer");
  const std::string turn = "<|start|>assistant", thoughts = " to=self<|message|>Hm.<|eom|>",
                    call =
                        " to=now<|message|><atem:function_calls>\n<atem:invoke name=\"now\">\n"
                        "</atem:invoke>\n</atem:function_calls>";
  const auto required =
      constraint(row, {.choice = {Kind::kRequired}, .prompt = turn, .reasoning = "muse_glimmer"})
          .value();
  EXPECT_TRUE(allows(required, call));
  EXPECT_TRUE(allows(required, thoughts + turn + call));
  EXPECT_FALSE(allows(required, thoughts + call));
  EXPECT_FALSE(allows(required, turn + call));
  EXPECT_FALSE(allows(required, thoughts + turn + " to=user<|message|>Hello."));
  const auto free = constraint(row, {.prompt = turn, .reasoning = "muse_glimmer"}).value();
  EXPECT_TRUE(allows(free, thoughts + turn + " to=user<|message|>Hello.<|eot|>"));
  EXPECT_TRUE(allows(free, " to=user<|message|>Hello."));
}

// A call may stand at the start of a line behind text, so the text has none that is not held to.
TEST(CallGrammar, CallsAtTheStartOfALineAreNoFreeText) {
  const auto free = constraint(*find_tool_parser("llama3_json"), {}).value();
  EXPECT_TRUE(allows(free, "Well:\n{\"a\": 1}"));
  EXPECT_FALSE(allows(free, "Well:\n{\"name\": \"get_weather\", \"parameters\": {\"city\": 1}}"));
}

TEST(CallGrammar, NothingAskedForIsNothingHeld) {
  Json free = kFourTools;
  for (Json& tool : free) tool["function"].erase("strict");
  EXPECT_FALSE(constraint(hermes(), {.tools = free}));
  EXPECT_TRUE(constraint(hermes(), {.tools = free, .choice = {Kind::kAuto, {"now"}}}));
}

TEST(CallGrammar, WhatCannotBeHeldToIsRefused) {
  const auto error = [](const char* parser, Asked asked) {
    auto made =
        reply_constraint({&asked.tools, asked.choice, false, asked.answer},
                         {find_tool_parser(parser), nullptr, asked.chat_template, asked.prompt});
    return made ? "" : made.error().message;
  };
  EXPECT_THAT(error("hermes", {.choice = {Kind::kNamed, {"later"}}}),
              HasSubstr("there is no tool 'later'"));
  EXPECT_THAT(error("hermes", {.tools = Json::array(), .choice = {Kind::kRequired}}),
              HasSubstr("there are no tools"));
  EXPECT_THAT(error("", {.choice = {Kind::kRequired}}), HasSubstr("not known"));
  Json tools = Json::parse(
      R"([{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"string","not":{"const":"x"}}}}}}])");
  EXPECT_THAT(error("qwen3_coder", {.tools = tools}),
              HasSubstr("tools[0].function.parameters: properties.a: not"));
  EXPECT_EQ(error("hermes", {.tools = tools}), "");
  tools[0]["function"].erase("strict");
  EXPECT_EQ(error("qwen3_coder", {.tools = tools, .choice = {Kind::kRequired}}), "");
  tools[0]["function"]["parameters"]["type"] = "string";
  tools[0]["function"]["strict"] = true;
  EXPECT_THAT(error("hermes", {.tools = tools}), HasSubstr("expected \"object\""));
}

}  // namespace
}  // namespace penstock
