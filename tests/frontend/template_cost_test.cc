// What a chat template may cost: steps are charged by the size of what is read and written.
#include <gmock/gmock.h>

#include <chrono>

#include "base/work.h"
#include "formats/weight_source.h"
#include "frontend/chat/chat_prompt.h"
#include "frontend/chat/chat_template.h"
#include "support/test_data.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

std::string error_of(const std::string& source,
                     const RenderOptions& options = {.max_steps = 2'000'000}) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed) return parsed.error().message;
  const auto rendered = parsed->render(Json::object(), options);
  return rendered ? "rendered" : rendered.error().message;
}

// Each step of these takes a text of megabytes; one that were a step only would go on for minutes.
TEST(TemplateCost, StepsAreChargedBySize) {
  const std::string text = "{% set x = 'ab c' * 1000000 %}", many = "{% for i in range(100000) %}";
  const std::string non_ascii = "{% set x = 'é\n<' * 1000000 %}";
  for (const char* filter : {"x | upper",
                             "x | title",
                             "x | capitalize",
                             "x | trim",
                             "x | length",
                             "x | replace('z', 'y')",
                             "x | wordcount",
                             "x | striptags",
                             "x | escape",
                             "x | urlencode",
                             "x | tojson",
                             "x | indent",
                             "x | string | int",
                             "x | list | first",
                             "x | first",
                             "x | reverse",
                             "x | truncate(20)",
                             "x | default('y')",
                             "x | center(20)",
                             "x | format",
                             "x | e",
                             "x is lower",
                             "x is upper",
                             "x is eq(x ~ '')",
                             "x is in x",
                             "x.islower()",
                             "x.istitle()",
                             "x.isprintable()",
                             "x.swapcase()",
                             "x.title()",
                             "x.strip('abc d')",
                             "x.rstrip('zyx')",
                             "x.split()",
                             "x.split('q')",
                             "x.splitlines()",
                             "x.rsplit('q', 1)",
                             "x.partition('q')",
                             "x.rpartition('zz')",
                             "x.find('zz')",
                             "x.rfind('zz')",
                             "x.count('ab')",
                             "x.replace('a', 'b')",
                             "x.startswith('zz')",
                             "x.endswith(x)",
                             "x.expandtabs()",
                             "x.zfill(5)",
                             "x.center(5)",
                             "x.isidentifier()",
                             "x.removeprefix('q')",
                             "x.join(['a', 'b'])",
                             "x.format()",
                             "x.isalnum()",
                             "x.isdigit()",
                             "x ~ 'y'",
                             "x + 'y'",
                             "x * 1",
                             "x == x ~ ''",
                             "x < x ~ 'a'",
                             "'zz' in x",
                             "x[::2]",
                             "x[1:]",
                             "x % ()",
                             "{x: 1}",
                             "[x] | join('-')",
                             "[x, x] | sort",
                             "[x, x] | unique | list",
                             "[x] | map('upper') | list",
                             "[x, x ~ ''] | max",
                             "x | batch(1000) | list",
                             "(x, x) | string",
                             "[x] | tojson"}) {
    for (const std::string& setting : {text, non_ascii}) {
      const std::string error =
          error_of(setting + many + "{% if " + std::string(filter) + " %}{% endif %}{% endfor %}");
      EXPECT_THAT(error, testing::AnyOf(HasSubstr("steps"), HasSubstr("longer than"),
                                        HasSubstr("too much memory"), HasSubstr("Error")))
          << filter;
    }
  }
}

TEST(TemplateCost, WhatIsThrownAwayIsCharged) {
  const std::string big = "{% set x = 'a' * 7000000 %}{% for i in range(100000) %}";
  EXPECT_THAT(error_of(big + "{% set y %}{{ x }}{% continue %}{% endset %}{% endfor %}"),
              HasSubstr("steps"));
  EXPECT_THAT(error_of(big + "{% set y %}{{ x }}{% endset %}{% endfor %}"), HasSubstr("steps"));
  EXPECT_THAT(error_of(big + "{% filter upper %}{{ x }}{% endfilter %}{% endfor %}"),
              testing::AnyOf(HasSubstr("steps"), HasSubstr("longer than")));
}

TEST(TemplateCost, MemoryIsBounded) {
  EXPECT_THAT(error_of("{% set x = 'a' * 100000000 %}"), HasSubstr("longer than"));
  EXPECT_THAT(error_of("{% set ns = namespace(l=[]) %}{% for i in range(100) %}{% set ns.l = ns.l "
                       "+ ['a' * 2000000 ~ i] %}{% endfor %}"),
              HasSubstr("memory"));
  EXPECT_THAT(error_of("{% set x = 'a ' * 4000000 %}{{ x.split() | length }}"), HasSubstr("items"));
  EXPECT_THAT(error_of("{% set x = '\n' * 4000000 %}{{ x.splitlines() | length }}"),
              HasSubstr("items"));
}

// A conversation of megabytes, as templates treat one, is no attack.
TEST(TemplateCost, LongConversationsHaveTheirShare) {
  const auto parsed = ChatTemplate::parse(
      "{% for m in messages %}<|{{ m.role }}|>{% set content = m.content | trim %}{% if '</think>' "
      "in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ "
      "content | trim }}<|end|>{% endfor %}");
  ASSERT_TRUE(parsed);
  Json context = {{"messages", Json::array()}};
  size_t bytes = 0;
  for (int i = 0; i < 40; ++i) {
    context["messages"].push_back(
        {{"role", "user"}, {"content", "<think>x</think>\n" + std::string(1'000'000, 'w')}});
    bytes += 1'000'000;
  }
  const RenderOptions options = render_options_for(context);
  const auto rendered = parsed->render(std::move(context), options);
  ASSERT_TRUE(rendered) << rendered.error().message;
  EXPECT_GT(rendered->size(), bytes);
}

// The text that a message is continued behind is looked for in the rendered text; both are of the
// request, and templates may render another text than the last message's.
TEST(TemplateCost, ContinuedMessagesAreFoundInLinearTime) {
  const auto source =
      open_weights((models_dir() / "penstock-stories-1m-q8_0.gguf").string()).value();
  const auto tokenizer = Tokenizer::load(*source).value();
  const auto prompter = ChatPrompter::open(*tokenizer, "{{ messages[0].content }}");
  ASSERT_TRUE(prompter) << prompter.error().message;
  const auto continued = [&](std::string text, std::string last) {
    const Json messages = {{{"role", "assistant"}, {"content", std::move(text)}},
                           {{"role", "assistant"}, {"content", std::move(last)}}};
    const ChatPrompt options{.add_generation_prompt = false, .continue_final_message = true};
    const auto prompt = prompter->render(messages, nullptr, Json::object(), options);
    return prompt ? *prompt : "none";
  };
  const std::string many(4'000'000, 'a'), half(2'000'000, 'a');
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(continued(many, half + "b"), "none");
  EXPECT_EQ(continued(many, "b" + half), "none");
  EXPECT_EQ(continued(many + "c", half), many);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(continued("one two one three", "one \n"), "one two one");
  EXPECT_EQ(continued("one two one", "one \n"), "one two one");
  EXPECT_EQ(continued("one\n two one", "one\n"), "one\n two one");
  EXPECT_EQ(continued("one two", "two"), "one two");
  EXPECT_EQ(continued("one two", "one two three"), "none");
  EXPECT_EQ(continued("one two", " "), "none");
}

TEST(TemplateCost, RenderingIsCancelled) {
  const auto parsed = ChatTemplate::parse("{% for i in range(100000) %}{{ i }}{% endfor %}");
  ASSERT_TRUE(parsed);
  Work work;
  const WorkScope scope(work);
  EXPECT_TRUE(parsed->render(Json::object()));
  work.cancel();
  EXPECT_THROW((void)parsed->render(Json::object()), WorkEnded);
}

}  // namespace
}  // namespace penstock
