#include "frontend/chat/message_forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "base/ordered_json.h"
#include "forms_under_test.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using Content = MessageForms::Content;
using ::testing::HasSubstr;

// What Jinja2 renders of every form of message; tests/frontend/make_message_forms_golden.py writes
// the file.
TEST(MessageForms, EveryFormAsJinja2WithTheFormThatTheTemplateCanUse) {
  std::ifstream file(tests_dir() / "golden" / "message_forms.json");
  const Json golden = Json::parse(file);
  for (const auto& [name, source] : golden["templates"].items()) {
    const FormsUnderTest chat(source);
    for (const Json& row : golden["cases"]) {
      if (row["template"] != name) continue;
      const std::string where = name + " / " + row["case"].get<std::string>();
      const auto text =
          chat.render(golden["conversations"][row["case"].get<std::string>()], golden["tools"]);
      if (row["expected"].is_null()) {
        EXPECT_FALSE(text) << where << ": expected a refusal, got " << *text;
      } else {
        ASSERT_TRUE(text) << where << ": " << text.error().message;
        EXPECT_EQ(*text, row["expected"].get<std::string>()) << where;
      }
    }
  }
}

TEST(MessageForms, AreFoundByWhatTheTemplateDoes) {
  std::ifstream file(tests_dir() / "golden" / "message_forms.json");
  const Json templates = Json::parse(file)["templates"];
  const auto found = [&](const char* name) { return FormsUnderTest(templates[name]).forms(); };
  EXPECT_EQ(found("plain").user, Content::kText);
  EXPECT_EQ(found("parts_only").user, Content::kParts);
  EXPECT_EQ(found("parts_and_text").assistant, Content::kEither);
  EXPECT_EQ(found("parts_of_users").user, Content::kEither);
  EXPECT_EQ(found("parts_of_users").assistant, Content::kText);
  EXPECT_TRUE(found("arguments_text").text_arguments);
  EXPECT_FALSE(found("items").text_arguments);
  EXPECT_TRUE(found("calls_instead_of_content").null_beside_calls);
  EXPECT_FALSE(found("refuses_none").null_beside_calls);
}

TEST(MessageForms, ToolsAndCallsThatTheTemplateShowsAreTold) {
  const MessageForms phi = FormsUnderTest(
                               "{% for m in messages %}{% if m.role == 'system' and 'tools' in m %}"
                               "{{ m.content + '<|tool|>' + m['tools'] + '<|/tool|>' }}"
                               "{% else %}{{ m.role + m.content }}{% endif %}{% endfor %}")
                               .forms();
  EXPECT_TRUE(phi.system_tools);
  EXPECT_FALSE(phi.shows_calls);
  const MessageForms usual = FormsUnderTest(
                                 "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% for "
                                 "c in m.tool_calls or [] "
                                 "%}{{ c | tojson }}{% endfor %}{% endfor %}")
                                 .forms();
  EXPECT_FALSE(usual.system_tools);
  EXPECT_TRUE(usual.shows_calls);
}

TEST(MessageForms, ATemplateThatRefusesEverythingGetsTheUsualForms) {
  const MessageForms forms = FormsUnderTest("{{ raise_exception('never') }}").forms();
  EXPECT_EQ(forms.user, Content::kText);
  EXPECT_FALSE(forms.text_arguments || forms.null_beside_calls || forms.system_tools);
  EXPECT_TRUE(forms.shows_calls);
}

TEST(MessageForms, WhatIsNoMessageIsRefusedByItsPlace) {
  const auto error_of = [](const char* messages) {
    const auto result = in_forms({}, Json::parse(messages));
    return result ? "none" : result.error().message;
  };
  EXPECT_THAT(error_of("[]"), HasSubstr("at least one"));
  EXPECT_THAT(error_of(R"([{"role": "user", "content": "x"}, 5])"), HasSubstr("messages[1]"));
  EXPECT_THAT(error_of(R"([{"role": "user", "content": 5}])"), HasSubstr("messages[0].content"));
  EXPECT_THAT(
      error_of(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])"),
      HasSubstr("image_url"));
  EXPECT_THAT(error_of(R"([{"role": "user", "content": [{"type": "text"}]}])"), HasSubstr("text"));
}

// A request may give a message any number of members.
TEST(MessageForms, NullsAreLeftOutInLinearTime) {
  Json message = {{"role", "user"}, {"content", nullptr}, {"name", nullptr}, {"weight", 1}};
  for (int i = 0; i < 200'000; ++i) add_member(message, "x" + std::to_string(i), nullptr);
  add_member(message, "last", 2);
  const auto begin = std::chrono::steady_clock::now();
  const auto messages = in_forms({}, Json::array({std::move(message)}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  ASSERT_TRUE(messages) << messages.error().message;
  const Json expected = {{"role", "user"}, {"content", ""}, {"weight", 1}, {"last", 2}};
  EXPECT_EQ((*messages)[0], expected);
}

TEST(MessageForms, ReasoningHasBothNamesAndDevelopersBecomeSystemMessages) {
  MessageForms forms;
  forms.developer = false;
  const Json messages = Json::parse(R"([{"role": "developer", "content": "a"},
      {"role": "assistant", "content": "b", "reasoning": "hm"}, {"role": "assistant", "content": "c",
      "reasoning_content": "ah", "reasoning": null}])");
  const Json result = in_forms(forms, messages).value();
  EXPECT_EQ(result[0]["role"], "system");
  EXPECT_EQ(result[1]["reasoning_content"], "hm");
  EXPECT_EQ(result[2]["reasoning"], "ah");
}

TEST(MessageForms, IdsOfOtherServersFitATemplateThatIsStrict) {
  const std::string strict = R"({%- for m in messages %}
      {%- for c in m.tool_calls or [] %}
          {%- if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}
          {{- '[' + c.id + c.function.name + c.function.arguments.key | default('') + ']' }}
      {%- endfor %}
      {%- if m.role == 'tool' %}
          {%- if m.tool_call_id | length != 9 %}{{ raise_exception('nine') }}{% endif %}
          {{- '(' + m.tool_call_id + ')' }}
      {%- endif %}{{- m.content }}
  {%- endfor %})";
  const FormsUnderTest chat(strict);
  const auto conversation = [](const char* id) {
    const Json call = {
        {"id", id}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
    return Json::array(
        {{{"role", "user"}, {"content", "hi"}},
         {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}},
         {{"role", "tool"}, {"tool_call_id", id}, {"content", "ok"}}});
  };
  const auto kept = chat.render(conversation("abc123XYZ"), nullptr);
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_EQ(*kept, "hi[abc123XYZf](abc123XYZ)ok");
  const auto made = chat.render(conversation("call_of_another_server"), nullptr);
  ASSERT_TRUE(made) << made.error().message;
  const std::string id = made->substr(3, 9);
  EXPECT_EQ(*made, "hi[" + id + "f](" + id + ")ok");
  EXPECT_NE(chat.render(conversation("call_of_another_one"), nullptr)->substr(3, 9), id);
}

const Json& agents_turns() {
  static const Json messages = Json::parse(R"([{"role": "system", "content": "one"},
      {"role": "developer", "content": [{"type": "text", "text": "two"}]},
      {"role": "user", "content": "three"}, {"role": "user", "content": "four"},
      {"role": "assistant", "content": "five"}, {"role": "system", "content": "six"},
      {"role": "user", "content": "seven"}])");
  return messages;
}

TEST(MessageForms, ATemplateOfOneSystemTurnGetsOneAndLaterOnesInTheirPlace) {
  // Takes a system turn at the beginning and nowhere else.
  const FormsUnderTest chat(R"({%- for m in messages %}
      {%- if m.role in ('system', 'developer') and not loop.first %}{{ raise_exception('one') }}{% endif %}
      {{- '<' + m.role + '>' + m.content }}{% endfor %})");
  const auto text = chat.render(agents_turns(), nullptr);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, "<system>one\ntwo<user>three<user>four<assistant>five<user>six<user>seven");
}

TEST(MessageForms, ATemplateThatWantsTurnsToAlternateGetsThem) {
  const FormsUnderTest chat(R"({%- for m in messages if m.role not in ('system', 'developer') %}
      {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}
      {{- '<' + m.role + '>' + m.content }}{% endfor %})");
  const auto text = chat.render(agents_turns(), nullptr);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, "<user>three\n\nfour<assistant>five<user>seven");
}

TEST(MessageForms, ATemplateThatTakesAllTurnsGetsThemAsTheyAre) {
  const FormsUnderTest chat("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  const auto text = chat.render(agents_turns(), nullptr);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text,
            "<system>one<developer>two<user>three<user>four<assistant>five<system>six<user>seven");
}

}  // namespace
}  // namespace penstock
