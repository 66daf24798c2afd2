// The built-in template of models with a tekken.json against mistral-common
// (tests/text/make_tekken_golden.py).
#include <gmock/gmock.h>

#include <fstream>

#include "frontend/chat/chat_prompt.h"
#include "frontend/chat/reply_parser.h"
#include "support/test_data.h"
#include "text/tokenizer.h"

namespace penstock::mistral_template_test {
namespace {

using Json = nlohmann::ordered_json;

Json read_golden(const char* name) {
  std::ifstream file(tests_dir() / "text" / "golden" / name);
  return Json::parse(file);
}

std::unique_ptr<Tokenizer> open_changed(const Json& change) {
  Json root = read_golden("tiny_tekken.json");
  root["config"]["version"] = change["version"];
  root["special_tokens"] = Json::array();
  for (const Json& name : change["special_tokens"])
    root["special_tokens"].push_back(
        {{"rank", root["special_tokens"].size()}, {"token_str", name}});
  if (change["special_tokens"].is_null()) root.erase("special_tokens");
  if (change.contains("reasoning_effort"))
    root["model_settings_builder"] = {{"reasoning_effort", change["reasoning_effort"]}};
  TokenizerFiles files;
  files.tokenizer_json = root.dump();
  auto tokenizer = Tokenizer::from_files(files);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *std::move(tokenizer);
}

TEST(MistralTemplate, ConversationsAreTheReferences) {
  const Json golden = read_golden("tekken.golden.json");
  for (const auto& [name, change] : golden["changes"].items()) {
    const auto tokenizer = open_changed(change);
    const auto prompter = ChatPrompter::open(*tokenizer);
    ASSERT_TRUE(prompter) << name << ": " << prompter.error().message;
    for (const auto& [key, entry] : golden["conversations"][name].items()) {
      const ChatPrompt options{.add_generation_prompt =
                                   entry["messages"].back()["role"] != "assistant"};
      const auto text =
          prompter->render(entry["messages"], entry["tools"], entry["variables"], options);
      ASSERT_TRUE(text) << name << " " << key << ": " << text.error().message;
      EXPECT_EQ(*text, entry["text"].get<std::string>()) << name << " " << key;
      // "[INST]" in the user's text is text there, a token here: templates cannot tell them apart.
      if (key == "turns") continue;
      EXPECT_EQ(Json(tokenizer->encode(*text, {.add_special = false, .parse_special = true})),
                entry["ids"])
          << name << " " << key;
    }
  }
}

TEST(MistralTemplate, CallsAndThoughtsAreReadByIt) {
  const Json changes = read_golden("tekken.golden.json")["changes"];
  for (const auto& [name, change] : changes.items()) {
    const auto tokenizer = open_changed(change);
    EXPECT_EQ(detect_tool_parser(tokenizer->chat_template()), "mistral") << name;
    const bool thinks = name == "v13-thinking" || name == "v15";
    EXPECT_EQ(detect_reasoning(tokenizer->chat_template()), thinks ? "mistral" : "") << name;
  }
}

}  // namespace
}  // namespace penstock::mistral_template_test
