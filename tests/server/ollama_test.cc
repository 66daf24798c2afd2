// What Ollama's messages become in chat completions' terms.
#include "server/api/ollama.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/api/conversations.h"
#include "server/routing/errors.h"

namespace penstock {
namespace {

Result<Conversation> conversation_of(const char* text) {
  nlohmann::ordered_json body = nlohmann::ordered_json::parse(text);
  return conversation_of_ollama(body);
}

TEST(OllamaConversation, AnswersOfToolsFindTheirCalls) {
  const auto read = conversation_of(R"({"messages": [{"role": "user", "content": "x"},
      {"role": "assistant", "thinking": "well", "tool_calls": [
        {"function": {"name": "a", "arguments": {"n": 1}}}, {"function": {"name": "b"}},
        {"function": {"name": "a", "arguments": {"n": 2}}}]},
      {"role": "tool", "tool_name": "b", "content": "of b"}, {"role": "tool", "tool_name": "a", "content": "first"},
      {"role": "tool", "content": "without a name"}, {"role": "tool", "tool_name": "c", "content": "nobody asked"}]})");
  ASSERT_TRUE(read) << read.error().message;
  const nlohmann::ordered_json& messages = read->messages;
  const nlohmann::ordered_json& calls = messages[1]["tool_calls"];
  EXPECT_EQ(messages[1]["reasoning_content"], "well");
  EXPECT_EQ(messages[1]["content"], "");
  EXPECT_EQ(calls[0]["function"]["arguments"], (nlohmann::ordered_json{{"n", 1}}));
  EXPECT_EQ(calls[1]["function"]["arguments"], nlohmann::ordered_json::object());
  EXPECT_EQ(messages[2]["tool_call_id"], calls[1]["id"]);
  EXPECT_EQ(messages[3]["tool_call_id"], calls[0]["id"]);
  EXPECT_EQ(messages[4]["tool_call_id"], calls[2]["id"]);
  for (const nlohmann::ordered_json& call : calls)
    EXPECT_NE(messages[5]["tool_call_id"], call["id"]);
  EXPECT_EQ(messages[2]["name"], "b");
  EXPECT_FALSE(messages[4].contains("name"));
  EXPECT_TRUE(read->options.add_generation_prompt);
}

TEST(OllamaConversation, TheAssistantsLastMessageIsTheBeginningOfItsReply) {
  const auto begun = conversation_of(
      R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "I"}], "tools": []})");
  ASSERT_TRUE(begun);
  EXPECT_TRUE(begun->options.continue_final_message);
  EXPECT_FALSE(begun->options.add_generation_prompt);
  EXPECT_TRUE(begun->tools.is_null());
}

TEST(OllamaConversation, ImagesPrecedeTheText) {
  const auto read = conversation_of(
      R"({"messages": [{"role": "user", "images": []}, {"role": "user", "content": "x", "images": ["aGk="]}]})");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->messages[0]["content"], "");
  nlohmann::ordered_json content = read->messages[1]["content"];
  const auto place = content[0]["penstock_place"].get_binary();
  EXPECT_EQ(std::string(place.begin(), place.end()), "messages[1].images[0]");
  content[0].erase("penstock_place");
  EXPECT_EQ(
      content.dump(),
      R"([{"type":"image_url","image_url":{"url":"data:image;base64,aGk="}},{"type":"text","text":"x"}])");
}

TEST(OllamaTimes, AreUtcWithMicroseconds) {
  const std::chrono::system_clock::time_point time(
      std::chrono::microseconds(1'700'000'000'000'007));
  EXPECT_EQ(rfc3339(time), "2023-11-14T22:13:20.000007Z");
  EXPECT_EQ(nanoseconds(0.25), 250'000'000);
}

TEST(OllamaErrors, AreOfItsPathsOnly) {
  EXPECT_EQ(error_body_at("/api/none", 404, "no \"x\""), R"({"error":"no \"x\""})");
  EXPECT_TRUE(
      nlohmann::ordered_json::parse(error_body_at("/apix", 404, "no"))["error"].is_object());
}

}  // namespace
}  // namespace penstock
