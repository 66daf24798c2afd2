#include "frontend/chat/call_history.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "frontend/chat/reply_parser.h"
#include "frontend/parse_reply.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

const CallWriting& writing_of(const char* parser) {
  return find_tool_parser(parser)->format.writing_for("");
}

Json history() {
  return Json::parse(R"([{"role": "user", "content": "hi"},
      {"role": "assistant", "content": null, "tool_calls": [
        {"id": "call_a", "function": {"name": "f", "arguments": "{\"n\": 123456789012345678901}"}},
        {"id": "call_b", "function": {"name": "now", "arguments": {}}}]},
      {"role": "tool", "tool_call_id": "call_b", "content": "noon"},
      {"role": "tool", "tool_call_id": "call_a", "content": "1"},
      {"role": "assistant", "content": "Again.", "tool_calls": [
        {"id": "functions.f:7", "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "functions.f:7", "content": "2"}])");
}

TEST(CallHistory, IdsOfOtherServersBecomeThoseThatKimisTemplateShows) {
  Json messages = history();
  fit_call_ids(find_tool_parser("kimi_k2")->format.written.front(), messages);
  EXPECT_EQ(messages[1]["tool_calls"][0]["id"], "functions.f:0");
  EXPECT_EQ(messages[1]["tool_calls"][1]["id"], "functions.now:1");
  EXPECT_EQ(messages[2]["tool_call_id"], "functions.now:1");
  EXPECT_EQ(messages[3]["tool_call_id"], "functions.f:0");
  // The model's own stay.
  EXPECT_EQ(messages[4]["tool_calls"][0]["id"], "functions.f:7");
  EXPECT_EQ(messages[5]["tool_call_id"], "functions.f:7");
  for (const char* parser : {"hermes", "mistral", "solar_open"}) {
    Json others = history();
    fit_call_ids(writing_of(parser), others);
    EXPECT_EQ(others, history()) << parser;
  }
}

TEST(CallHistory, CallsAreWrittenAsTheModelDoes) {
  Json messages = history();
  calls_into_content(writing_of("phi4_mini_json"), messages);
  EXPECT_EQ(messages[1]["content"],
            "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\":123456789012345678901}}, "
            "{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>");
  EXPECT_FALSE(messages[1].contains("tool_calls"));
  EXPECT_EQ(messages[4]["content"],
            "Again.<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>");
  EXPECT_EQ(messages[2], history()[2]);
  // And read as they were.
  auto parser = std::move(*make_reply_parser({"phi4_mini_json", "", false}));
  const ReplyPart read = parse_reply(*parser, messages[1]["content"].get<std::string>());
  ASSERT_EQ(read.calls.size(), 2u);
  EXPECT_EQ(read.calls[0].arguments, R"({"n":123456789012345678901})");
  Json python = history();
  calls_into_content(writing_of("pythonic"), python);
  EXPECT_EQ(python, history());
}

TEST(CallHistory, WhatIsNoMessageIsLeftAsItIs) {
  for (const char* text :
       {"5", "{}", "[5, null, [], {}]", R"([{"tool_calls": 5}, {"tool_calls": [5, {}, null]}])",
        R"([{"role": "assistant", "tool_calls": [{"function": {"name": 5}}]}])"}) {
    Json messages = Json::parse(text);
    fit_call_ids(find_tool_parser("kimi_k2")->format.written.front(), messages);
    calls_into_content(writing_of("hermes"), messages);
    EXPECT_EQ(messages, Json::parse(text)) << text;
  }
}

}  // namespace
}  // namespace penstock
