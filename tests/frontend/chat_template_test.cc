#include "frontend/chat/chat_template.h"
#include "support/test_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

RenderOptions fixed_clock() {
  RenderOptions options;
  options.now = std::tm{};
  std::tm& now = *options.now;
  now.tm_year = 126;
  now.tm_mday = 2;
  now.tm_hour = 3;
  now.tm_min = 4;
  now.tm_sec = 5;
  now.tm_wday = 5;
  now.tm_yday = 1;
  return options;
}

Result<std::string> render(const std::string& source, const Json& context = Json::object(),
                           const RenderOptions& options = fixed_clock()) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed) return tl::unexpected(parsed.error());
  return parsed->render(context, options);
}

// What jinja2 renders or refuses; tests/frontend/make_jinja_golden.py writes the file.
TEST(ChatTemplate, SmallTemplatesAsJinja2) {
  std::ifstream file(tests_dir().string() + "/golden/jinja_cases.json");
  const Json golden = Json::parse(file);
  int n_refused = 0, n_same_message = 0;
  for (const Json& row : golden["cases"]) {
    const std::string source = row["template"];
    const auto rendered = render(source, golden["context"]);
    if (row.contains("expected")) {
      EXPECT_TRUE(rendered) << source << "\n" << rendered.error().message;
      if (rendered) {
        EXPECT_EQ(*rendered, row["expected"].get<std::string>()) << source;
      }
      continue;
    }
    const std::string error = row["error"];
    EXPECT_FALSE(rendered) << source << "\nrendered " << rendered.value_or("") << "\nexpected "
                           << error;
    if (rendered) continue;
    ++n_refused;
    const bool raised = error.starts_with("TemplateError: ");
    const bool same =
        std::string_view(rendered.error().message).ends_with(raised ? error.substr(15) : error);
    n_same_message += same ? 1 : 0;
    // What a template's author meets: the same words.
    if (raised || error.starts_with("UndefinedError") || error.starts_with("SecurityError")) {
      EXPECT_TRUE(same) << source << "\n" << rendered.error().message << "\nexpected " << error;
    } else if (!same) {
      std::cout << source << "\n  " << rendered.error().message << "\n  " << error << "\n";
    }
  }
  std::cout << golden["cases"].size() << " cases, " << n_refused << " refused, " << n_same_message
            << " with jinja2's message\n";
  EXPECT_GE(golden["cases"].size(), 700u);
  EXPECT_GE(n_same_message * 10, n_refused * 7);
}

TEST(ChatTemplate, ErrorsNameLineAndReason) {
  const auto undefined = render("a\n{% if true %}\n{{ x.y }}\n{% endif %}");
  ASSERT_FALSE(undefined);
  EXPECT_EQ(undefined.error().message, "chat template, line 3: UndefinedError: 'x' is undefined");
  const auto raised = render("\n{{ raise_exception('roles must alternate') }}");
  ASSERT_FALSE(raised);
  EXPECT_EQ(raised.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(raised.error().message, "chat template, line 2: roles must alternate");
  const auto syntax = ChatTemplate::parse("a\nb {{ c\n| }}");
  ASSERT_FALSE(syntax);
  EXPECT_THAT(
      syntax.error().message,
      HasSubstr(
          "line 3: TemplateSyntaxError: expected token 'name', got 'end of print statement'"));
  const auto inside = render("{% macro m() %}\n{{ 1 / 0 }}\n{% endmacro %}\n\n{{ m() }}");
  ASSERT_FALSE(inside);
  EXPECT_THAT(inside.error().message, HasSubstr("line 2: ZeroDivisionError"));
  EXPECT_EQ(render("{% include 'x' %}").error().code, ErrorCode::kUnsupported);
}

TEST(ChatTemplate, RefusesWhatIsNotText) {
  EXPECT_THAT(ChatTemplate::parse("ab\xff").error().message, HasSubstr("not UTF-8 at byte 2"));
  EXPECT_THAT(render("{{ x }}", {{"x", "a\xc3"}}).error().message,
              HasSubstr("not UTF-8 at its byte 1"));
  EXPECT_THAT(render("{{ x }}", {{"x", UINT64_MAX}}).error().message, HasSubstr("64 bits"));
  EXPECT_THAT(render("{{ x }}", Json::array()).error().message,
              HasSubstr("must be an object, got array"));
  EXPECT_FALSE(ChatTemplate::parse(std::string(ChatTemplate::kMaxSource + 1, 'a')));
}

struct Hostile {
  const char* name;
  std::string source;
};

std::string repeat(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

// Each would crash, hang or fill the memory without a limit.
TEST(ChatTemplate, HostileTemplatesEnd) {
  const std::string doubling =
      "{% set ns = namespace(x='ab', l=[1], d={}) %}{% for i in range(100000) %}";
  const std::vector<Hostile> cases = {
      {"endless macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"},
      {"mutual recursion in calls",
       "{% macro f() %}{% call g() %}{{ f() }}{% endcall %}{% endmacro %}{% macro g() %}{{ "
       "caller() }}{% endmacro %}{{ f() }}"},
      {"endless recursive loop", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"},
      {"nested loops", repeat("{% for x in range(100000) %}", 5) + "x" + repeat("{% endfor %}", 5)},
      {"doubling text", doubling + "{% set ns.x = ns.x + ns.x %}{% endfor %}"},
      {"doubling by concatenation", doubling + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}"},
      {"doubling a list", doubling + "{% set ns.l = ns.l + ns.l %}{% endfor %}"},
      {"nesting lists", doubling + "{% set ns.l = [ns.l] %}{% endfor %}"},
      {"nesting generators",
       doubling + "{% set ns.l = ns.l | map('string') %}{% endfor %}{{ ns.l | list }}"},
      {"nesting generators in arguments",
       doubling + "{% set ns.l = [1] | map('default', ns.l) %}{% endfor %}{{ ns.l | list }}"},
      {"nesting namespaces", doubling + "{% set ns.x = namespace(p=ns.x) %}{% endfor %}{{ ns }}"},
      {"shared lists printed",
       "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% "
       "endfor %}{{ ns.l }}"},
      {"shared lists compared",
       "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(100) %}{% set ns.a = [ns.a, ns.a] "
       "%}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}"},
      {"huge repetition", "{{ 'x' * 9000000000000000000 }}"},
      {"huge empty repetition of lists", "{{ [1] * 9000000000000000000 }}"},
      {"huge width", "{{ '%999999999999d' % 1 }}"},
      {"huge braces width", "{{ '{:999999999999}'.format(1) }}"},
      {"huge precision", "{{ '%.999999d' % 1 }}{{ '%.9999f' % 1.5 }}"},
      {"huge justification", "{{ 'x'.ljust(999999999999) }}"},
      {"huge indent", "{{ 'a\nb' | indent(99999999999) }}"},
      {"huge json indent", "{{ [[[[1]]]] | tojson(indent=9999999999) }}"},
      {"huge batch", "{{ [1] | batch(99999999999, 'x') | list }}"},
      {"huge slices", "{{ [1] | slice(99999999999) | list }}"},
      {"huge range", "{{ range(0, 9223372036854775807) }}"},
      {"integer overflow", "{{ 9223372036854775807 + 1 }}"},
      {"power overflow", "{{ 10 ** 100 }}"},
      {"exploding replace", "{% set x = 'a' * 60000 %}{{ x.replace('a', x) }}"},
      {"exploding join", "{% set x = 'a' * 60000 %}{{ x.join(x) }}"},
      {"strftime width", "{{ strftime_now('%99999999d') }}"},
      {"deep parentheses", "{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}"},
      {"deep lists", "{{ " + repeat("[", 100000) + repeat("]", 100000) + " }}"},
      {"deep subscripts", "{{ a" + repeat("[a", 100000) + repeat("]", 100000) + " }}"},
      {"deep unary", "{{ " + repeat("-", 100000) + "1 }}"},
      {"deep sum", "{{ 1" + repeat(" + 1", 100000) + " }}"},
      {"deep attributes", "{{ a" + repeat(".a", 100000) + " }}"},
      {"deep filters", "{{ a" + repeat(" | upper", 100000) + " }}"},
      {"deep calls", "{{ a" + repeat("()", 100000) + " }}"},
      {"deep conditions", "{{ " + repeat("1 if 0 else ", 100000) + "1 }}"},
      {"deep ifs", repeat("{% if 1 %}", 100000) + repeat("{% endif %}", 100000)},
      {"deep fors", repeat("{% for x in y %}", 100000) + repeat("{% endfor %}", 100000)},
      {"deep filter blocks",
       "{% filter " + repeat("upper | ", 100000) + "upper %}x{% endfilter %}"},
      {"cyclic namespace printed", "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}"},
  };
  for (const Hostile& hostile : cases) {
    const auto rendered = render(hostile.source);
    EXPECT_FALSE(rendered) << hostile.name;
  }
}

// Long but harmless templates stay inside the limits.
TEST(ChatTemplate, LongConversations) {
  Json messages = Json::array();
  for (int i = 0; i < 20000; ++i)
    messages.push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "Text " + std::to_string(i)}});
  const std::string source =
      "{% set ns = namespace(text='') %}{% for m in messages %}{% if m.role == 'user' %}{% set "
      "ns.text = ns.text + m.content | trim %}{% else %}{{ '<a>' + m['content'] + '</a>' }}{% "
      "endif %}{% endfor %}{{ ns.text | length }}";
  const auto rendered = render(source, {{"messages", messages}});
  ASSERT_TRUE(rendered) << rendered.error().message;
  EXPECT_THAT(*rendered, HasSubstr("<a>Text 19999</a>"));
  const std::string elifs = "{% if x == 0 %}0" + [] {
    std::string out;
    for (int i = 1; i < 5000; ++i)
      out += "{% elif x == " + std::to_string(i) + " %}" + std::to_string(i);
    return out;
  }() + "{% endif %}";
  EXPECT_EQ(render(elifs, {{"x", 4321}}).value_or("?"), "4321");
}

TEST(ChatTemplate, LimitsAreConfigurable) {
  RenderOptions few_steps = fixed_clock();
  few_steps.max_steps = 100;
  const auto rendered =
      render("{% for i in range(1000) %}{{ i }}{% endfor %}", Json::object(), few_steps);
  ASSERT_FALSE(rendered);
  EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument);
  RenderOptions short_output = fixed_clock();
  short_output.max_output = 10;
  EXPECT_EQ(render("{{ 'x' * 11 }}", Json::object(), short_output).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(render("{{ 'x' * 10 }}", Json::object(), short_output).value_or("?"), "xxxxxxxxxx");
}

// A macro that a namespace keeps, and the namespace that the macro sees, form a cycle;
// LeakSanitizer watches.
TEST(ChatTemplate, CyclesAreFreed) {
  const std::string source =
      "{% set ns = namespace() %}{% macro m() %}{{ ns.x }}{% endmacro %}{% set ns.m = m %}{% set "
      "ns.x = 'v' %}{% for i in [1] %}{% set ns.loop = loop %}{% endfor %}{% set ns.self = ns %}{{ "
      "ns.m() }}{{ ns.loop.index }}";
  EXPECT_EQ(render(source).value_or("?"), "v1");
}

TEST(ChatTemplate, OneTemplateManyThreads) {
  const auto parsed = ChatTemplate::parse(
      "{% set x = 'é' * 3 %}{% for i in range(n) %}{{ x[1] }}{{ 'ü'[0] }}{{ i }}{% endfor %}");
  ASSERT_TRUE(parsed);
  std::vector<std::thread> threads;
  std::vector<std::string> results(4);
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) results[t] = parsed->render({{"n", 20}}).value_or("failed");
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_THAT(results[0], HasSubstr("éü19"));
}

}  // namespace
}  // namespace penstock
