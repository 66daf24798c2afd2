// LLM::chat with the model of the server's tests, whose replies are known to the letter
// (tests/e2e/script_model.py).
#include "penstock/llm.h"
#include "support/test_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace penstock {
namespace {

using ::testing::HasSubstr;

// Writes the model once; the folder goes with the process.
class ScriptModel {
 public:
  ScriptModel()
      : folder_(std::filesystem::temp_directory_path() /
                ("script-model-" + std::to_string(getpid()))) {
    const std::string script = (tests_dir() / "e2e" / "script_model.py").string();
    const std::string command = "python3 '" + script + "' '" + folder_.string() + "' >/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    EngineConfig config;
    config.model = folder_.string();
    config.threads = 1;
    auto opened = LLM::open(config);
    EXPECT_TRUE(opened.has_value()) << opened.error().message;
    llm_ = std::move(opened).value();
  }
  ~ScriptModel() {
    llm_.reset();
    std::filesystem::remove_all(folder_);
  }
  LLM& llm() { return *llm_; }

 private:
  std::filesystem::path folder_;
  std::unique_ptr<LLM> llm_;
};

LLM& script() {
  static ScriptModel model;
  return model.llm();
}

constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "get_weather", "parameters": {}}}])";

ChatOptions with_tools() {
  ChatOptions chat;
  chat.tools_json = kTools;
  return chat;
}

SamplingParams at_most(int max_tokens, int n = 1) {
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = max_tokens;
  params.n = n;
  return params;
}

CompletionOutput said(const std::string& script_name, const ChatOptions& chat,
                      const SamplingParams& params = at_most(60)) {
  const ChatMessage message{"user", script_name};
  auto result = script().chat(std::span(&message, 1), params, {}, chat);
  EXPECT_TRUE(result) << result.error().message;
  return std::move(result->outputs[0]);
}

std::vector<std::pair<std::string, std::string>> calls_of(const ChatMessage& message) {
  std::vector<std::pair<std::string, std::string>> calls;
  for (const ToolCall& call : message.tool_calls) calls.emplace_back(call.name, call.arguments);
  return calls;
}

using Calls = std::vector<std::pair<std::string, std::string>>;

TEST(LLMChat, RepliesAreTakenApart) {
  const struct {
    const char *script, *reasoning, *content;
    Calls calls;
  } cases[] = {{"plain", "", "Hello there!", {}},
               {"weather", "", "", {{"get_weather", R"({"city":"Paris"})"}}},
               {"think", "Let me think.", "The answer is 42.", {}},
               {"several",
                "Two cities.",
                "I will look.",
                {{"get_weather", R"({"city":"Rome"})"}, {"get_time", "{}"}}},
               {"broken", "", "<tool_call>this is no call</tool_call> at all", {}}};
  for (const auto& one : cases) {
    const CompletionOutput output = said(one.script, with_tools());
    ASSERT_TRUE(output.message) << one.script;
    EXPECT_EQ(output.message->role, "assistant");
    EXPECT_EQ(output.message->reasoning, one.reasoning) << one.script;
    EXPECT_EQ(output.message->content, one.content) << one.script;
    EXPECT_EQ(calls_of(*output.message), one.calls) << one.script;
    EXPECT_EQ(output.finish_reason, FinishReason::kStop) << one.script;
  }
}

TEST(LLMChat, TheTextHasAllThatTheModelWrote) {
  EXPECT_EQ(said("weather", with_tools()).text,
            "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
            "\"Paris\"}}\n</tool_call>");
}

TEST(LLMChat, CallsAreLookedForWhenThereAreToolsOnly) {
  const CompletionOutput output = said("several", {});
  EXPECT_TRUE(output.message->tool_calls.empty());
  EXPECT_THAT(output.message->content, HasSubstr("<tool_call>{\"name\": \"get_weather\""));
}

TEST(LLMChat, ParsersCanBeNamed) {
  ChatOptions chat = with_tools();
  chat.reasoning_parser = "none";
  EXPECT_EQ(said("think", chat).message->content,
            "<think>\nLet me think.\n</think>\n\nThe answer is 42.");
  chat.tool_call_parser = "mistral";
  EXPECT_TRUE(said("weather", chat).message->tool_calls.empty());
  chat.tool_call_parser = "nope";
  const ChatMessage message{"user", "plain"};
  const auto refused = script().chat(std::span(&message, 1), at_most(5), {}, chat);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("tool call parser: expected one of harmony, dsml"));
}

TEST(LLMChat, TheOnlyCallEndsTheReply) {
  ChatOptions chat = with_tools();
  chat.parallel_tool_calls = false;
  const CompletionOutput output = said("several", chat);
  EXPECT_EQ(calls_of(*output.message), (Calls{{"get_weather", R"({"city":"Rome"})"}}));
  EXPECT_EQ(output.finish_reason, FinishReason::kStop);
}

TEST(LLMChat, AConversationGoesOnWithTheMessageAndTheAnswerToItsCall) {
  std::vector<ChatMessage> messages = {{"user", "weather"}};
  const ChatMessage reply = *said("weather", with_tools()).message;
  ASSERT_EQ(reply.tool_calls.size(), 1u);
  EXPECT_THAT(reply.tool_calls[0].id, ::testing::StartsWith("call_"));
  messages.push_back(reply);
  messages.push_back({"tool", "sun", {}, {}, reply.tool_calls[0].id});
  EXPECT_THAT(script().render_chat(messages, with_tools()).value(),
              HasSubstr("<|assistant|>[get_weather {\"city\": \"Paris\"}]<|end|><|tool|>sun"));
  const auto answer = script().chat(messages, at_most(20), {}, with_tools()).value();
  EXPECT_EQ(answer.outputs[0].message->content, "It is sunny in Paris.");
  messages = {{"user", "think"}, *said("think", {}).message, {"user", "plain"}};
  EXPECT_THAT(script().render_chat(messages).value(),
              HasSubstr("<think>Let me think.</think>The answer is 42."));
}

TEST(LLMChat, DeltasAddUpToTheMessage) {
  std::vector<ChatMessage> heard(2);
  int n_ends = 0;
  std::string text;
  ChatOptions chat = with_tools();
  chat.on_delta = [&](const ChatDelta& delta) {
    ChatMessage& message = heard[static_cast<size_t>(delta.index)];
    message.role = "assistant";
    message.reasoning += delta.reasoning;
    message.content += delta.content;
    message.tool_calls.insert(message.tool_calls.end(), delta.tool_calls.begin(),
                              delta.tool_calls.end());
    n_ends += delta.finish != FinishReason::kNone;
    return true;
  };
  GenerateOptions options;
  options.on_text = [&](const TextDelta& delta) {
    if (delta.index == 0) text += delta.text;
    return true;
  };
  const ChatMessage message{"user", "several"};
  const auto result = script().chat(std::span(&message, 1), at_most(60, 2), options, chat).value();
  for (int i : {0, 1}) EXPECT_EQ(heard[i], *result.outputs[i].message) << i;
  EXPECT_EQ(n_ends, 2);
  EXPECT_EQ(text, result.outputs[0].text);
}

TEST(LLMChat, ADeltaThatIsNotWantedEndsTheReply) {
  ChatOptions chat;
  int n_heard = 0;
  chat.on_delta = [&](const ChatDelta&) { return ++n_heard < 3; };
  const CompletionOutput output = said("endless", chat, at_most(900));
  EXPECT_EQ(output.finish_reason, FinishReason::kAbort);
  EXPECT_EQ(n_heard, 3);
}

TEST(LLMChat, WhatCannotBeIsRefused) {
  const ChatMessage message{"user", "plain"};
  const auto refused = [&](const ChatOptions& chat, std::span<const ChatMessage> messages) {
    const auto result = script().chat(messages, at_most(5), {}, chat);
    return result ? std::string("went on") : result.error().message;
  };
  ChatOptions no_list, no_place = with_tools();
  no_list.tools_json = "{}";
  no_place.chat_template = "{{ messages[0].content }}";
  EXPECT_THAT(refused(no_list, {&message, 1}), HasSubstr("tools: expected a JSON array"));
  EXPECT_THAT(refused(no_place, {&message, 1}),
              HasSubstr("tools: the model's chat template has no place"));
  EXPECT_THAT(refused({}, {}), HasSubstr("messages: expected a list with at least one message"));
  const ChatMessage long_one{"user", std::string(100'000, 'x')};
  EXPECT_THAT(refused({}, {&long_one, 1}), HasSubstr("1024"));
}

}  // namespace
}  // namespace penstock
