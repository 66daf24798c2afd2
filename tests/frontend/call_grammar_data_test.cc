// Calls as real chat templates write them into prompts: the grammar that the template asks for
// allows the same text.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "forms_under_test.h"
#include "frontend/chat/parameter_schemas.h"
#include "frontend/chat/reply_grammar.h"
#include "frontend/parse_reply.h"
#include "grammar/grammar.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

const Json kTools = Json::parse(
    R"([{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.",
  "strict": true, "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"},
  "days": {"type": "integer", "description": "How many"}}, "required": ["city"], "additionalProperties": false}}}])");
const Json kCall = Json::parse(
    R"({"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function",
  "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}}]})");
const ToolCall kWanted{"get_weather", R"({"city":"Zürich","days":2})"};

// Templates that show calls otherwise than models of the row write them.
const std::set<std::string> kOtherwise = {
    "tool_chat_template_gemma3_pythonic.jinja",    // no comma between arguments
    "tool_chat_template_llama3.2_pythonic.jinja",  // strings without quotes
    "tool_chat_template_toolace.jinja",            // likewise
    "tool_chat_template_llama4_pythonic.jinja",    // numbers with quotes
    "unsloth-Apriel-1.5.jinja",                    // Python's quotes in JSON
    "Reka-Edge.jinja",                             // escapes that nothing needs
    "tool_chat_template_mistral.jinja",            // ids, which models do not choose
    "openai-gpt-oss-120b.jinja",                   // the recipient stands in front of the channel
};

// What the model would have said, and more behind it; "" where the template does not write calls
// so.
std::string reply_in(const FormsUnderTest& chat, std::string& prompt) {
  const Json user = {{"role", "user"}, {"content", "Weather in Zürich?"}};
  const auto before = chat.render(Json::array({user}), kTools);
  const auto after = chat.render(Json::array({user, kCall}), kTools);
  if (!before || !after || !after->starts_with(*before)) return {};
  prompt = *before;
  return after->substr(before->size());
}

// The longest beginning that is a whole reply.
std::string allowed_part(const StructuredOutputs& outputs, const std::string& text) {
  static const auto vocabulary = grammar::Vocabulary::make(std::vector<std::string>{"x", ""}, {1});
  auto compiled = grammar::Grammar::compile(
      {.kind = grammar::SpecKind::kStructuralTag, .text = outputs.structural_tag}, vocabulary);
  if (!compiled) return "refused: " + compiled.error().message;
  grammar::Matcher matcher(*compiled);
  size_t whole = 0;
  for (size_t i = 0; i < text.size() && matcher.append_bytes(text.substr(i, 1)); ++i) {
    if (matcher.may_end()) whole = i + 1;
  }
  return text.substr(0, whole);
}

// The model's own ids are kept for some formats.
std::vector<ToolCall> without_ids(std::vector<ToolCall> calls) {
  for (ToolCall& call : calls) call.id.clear();
  return calls;
}

TEST(CallGrammarData, AllowsWhatRealTemplatesWrite) {
  REQUIRE_TEST_DATA("templates/jinja");
  std::set<std::string> rows;
  int n_same = 0, n_other = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(test_data_dir() / "templates" / "jinja")) {
    std::ifstream in(file.path(), std::ios::binary);
    const std::string source{std::istreambuf_iterator<char>(in), {}},
        name = file.path().filename().string();
    const ToolParserRow* row = find_tool_parser(detect_tool_parser(source));
    if (row == nullptr || kOtherwise.contains(name) || !ChatTemplate::parse(source)) continue;
    std::string prompt;
    const std::string reply = reply_in(FormsUnderTest(source), prompt);
    if (reply.find(kWanted.name) == std::string::npos) {
      ++n_other;
      continue;
    }
    const std::string reasoning(detect_reasoning(source));
    const auto outputs =
        reply_constraint({&kTools, {ToolChoice::Kind::kRequired}, false, std::nullopt},
                         {row, find_reasoning(reasoning), source, prompt});
    ASSERT_TRUE(outputs && *outputs) << name;
    const std::string text = allowed_part(**outputs, reply);
    const ReplyParserOptions options{
        .tools = row->name,
        .reasoning = reasoning,
        .starts_in_reasoning = prompt_opens_reasoning(prompt, reasoning),
        .parameters = std::make_shared<const ParameterTypes>(
            parameter_types(kTools, row->format.needs_inner_types())),
        .opened = std::string(prompt_opens_call(prompt, row->format))};
    const ReplyPart read = parse_reply(**make_reply_parser(options), text);
    EXPECT_EQ(without_ids(read.calls), std::vector{kWanted})
        << name << " (" << row->name << "): " << reply.substr(0, 300);
    EXPECT_EQ(read.content, "") << name;
    if (!read.calls.empty()) rows.insert(row->name);
    ++n_same;
  }
  std::cout << n_same << " templates of " << rows.size() << " formats; " << n_other
            << " more write no calls behind prompts\n";
  EXPECT_GE(n_same, 20);
  EXPECT_GE(rows.size(), 12u);
}

}  // namespace
}  // namespace penstock
