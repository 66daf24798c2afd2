// Which reply parsers real chat templates ask for.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>

#include "frontend/chat/reply_parser.h"
#include "support/test_data.h"

namespace penstock {
namespace {

struct Wanted {
  const char *tools, *reasoning;
};

TEST(ReplyParsersData, FoundFromRealTemplates) {
  REQUIRE_TEST_DATA("templates/jinja");
  const std::map<std::string, Wanted> wanted = {
      {"Qwen-Qwen3-0.6B.jinja", {"hermes", "think"}},
      {"Qwen-QwQ-32B.jinja", {"hermes", "think"}},
      {"qwen2.5-instruct.jinja", {"hermes", ""}},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", {"hermes", ""}},
      {"Qwen3-Coder.jinja", {"qwen3_coder", ""}},
      {"nemotron3nano_chat_template.jinja2", {"qwen3_coder", "think"}},
      {"deepseek-ai-DeepSeek-V3.1.jinja", {"deepseek", "think"}},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", {"deepseek", "think"}},
      {"Kimi-K2-Instruct.jinja", {"kimi_k2", ""}},
      {"Mistral-Small-3.2-24B-Instruct-2506.jinja", {"mistral", ""}},
      {"mistralai-Ministral-3-14B-Reasoning-2512.jinja", {"mistral", "mistral"}},
      {"meta-llama-Llama-3.2-3B-Instruct.jinja", {"llama3_json", ""}},
      {"tool_chat_template_llama3.1_json.jinja", {"llama3_json", ""}},
      {"tool_chat_template_llama4_pythonic.jinja", {"pythonic", ""}},
      {"tool_chat_template_llama3.2_pythonic.jinja", {"pythonic", ""}},
      {"meetkai-functionary-medium-v3.1.jinja", {"functionary", ""}},
      {"ibm-granite-granite-3.3-2B-Instruct.jinja", {"granite", "think_response"}},
      {"LFM2-8B-A1B.jinja", {"lfm2", ""}},
      {"google-gemma-4-31B-it-interleaved.jinja", {"gemma4", "gemma4"}},
      {"Apertus-8B-Instruct.jinja", {"apertus", "apertus"}},
      {"deepseek-ai-DeepSeek-V4.jinja", {"dsml", "think"}},
      {"Apriel-1.6-15b-Thinker-fixed.jinja", {"hunyuan_a13b", "apriel"}},
      {"tool_chat_template_hunyuan_a13b.jinja", {"hunyuan_a13b", "hunyuan_a13b"}},
      {"MiMo-VL.jinja", {"hermes", "think"}},
      {"ByteDance-Seed-OSS.jinja", {"seed_oss", "seed"}},
      {"llama-2-chat.jinja", {"", ""}},
      {"zephyr.jinja", {"", ""}},
  };
  for (const auto& [name, expected] : wanted) {
    std::ifstream file(test_data_dir() / "templates" / "jinja" / name, std::ios::binary);
    ASSERT_TRUE(file) << name;
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(detect_tool_parser(source), expected.tools) << name;
    EXPECT_EQ(detect_reasoning(source), expected.reasoning) << name;
  }
}

}  // namespace
}  // namespace penstock
