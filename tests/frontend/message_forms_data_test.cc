// Every form of message with every real chat template, against Jinja2 given the form that the
// template can use.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "forms_under_test.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// As zlib has it.
uint32_t crc32(std::string_view text) {
  uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

// tests/frontend/make_message_forms_golden.py FOLDER writes the second golden file.
TEST(MessageFormsData, EveryFormWithEveryTemplateAsJinja2) {
  REQUIRE_TEST_DATA("templates/jinja");
  std::ifstream file(tests_dir() / "golden" / "message_forms.json");
  const Json golden = Json::parse(file);
  std::ifstream sums(tests_dir() / "golden" / "message_forms_templates.json");
  const Json templates = Json::parse(sums);
  const std::string bare = "_without_tools";
  int n_equal = 0, n_refused = 0;
  for (const auto& [name, cases] : templates.items()) {
    std::ifstream source(test_data_dir() / "templates" / "jinja" / name, std::ios::binary);
    ASSERT_TRUE(source) << name;
    const FormsUnderTest chat(std::string{std::istreambuf_iterator<char>(source), {}});
    for (const auto& [id, expected] : cases.items()) {
      const bool with_tools = !id.ends_with(bare);
      const std::string conversation = with_tools ? id : id.substr(0, id.size() - bare.size());
      const auto text = chat.render(golden["conversations"][conversation],
                                    with_tools ? golden["tools"] : Json(nullptr));
      if (expected.is_null()) {
        EXPECT_FALSE(text) << name << " / " << id << ": expected a refusal, got " << *text;
        ++n_refused;
      } else if (!text) {
        ADD_FAILURE() << name << " / " << id << ": " << text.error().message;
      } else {
        EXPECT_EQ(crc32(*text), expected.get<uint32_t>()) << name << " / " << id << ": " << *text;
        ++n_equal;
      }
    }
  }
  std::cout << templates.size() << " templates, " << n_equal << " renderings, " << n_refused
            << " refused\n";
  EXPECT_GT(n_equal, 2800);
}

// As coding tools send it: instructions and developer messages, notes of the system in the middle,
// several messages of the user. Whatever a template takes at all is in the prompt.
TEST(MessageFormsData, NothingOfAnAgentsConversationIsLost) {
  REQUIRE_TEST_DATA("templates/jinja");
  const auto said = [](const char* role, const char* text) {
    return Json{{"role", role}, {"content", text}};
  };
  const Json usual = {said("system", "word-one"), said("user", "word-two")};
  const Json turns = {said("user", "word-one"), said("assistant", "word-two"),
                      said("user", "word-three")};
  const Json agents = {said("system", "word-one"),     said("developer", "word-two"),
                       said("user", "word-three"),     said("user", "word-four"),
                       said("assistant", "word-five"), said("system", "word-six"),
                       said("user", "word-seven")};
  const auto lost = [](const Json& messages, const std::string& text) {
    std::string words;
    for (const Json& message : messages) {
      const std::string word = message["content"];
      if (text.find(word) == text.npos) words += " " + word;
    }
    return words;
  };
  int n_templates = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(test_data_dir() / "templates" / "jinja")) {
    std::ifstream source(file.path(), std::ios::binary);
    const FormsUnderTest chat(std::string{std::istreambuf_iterator<char>(source), {}});
    // Templates without a place for the system, or for more than one question, show less.
    bool takes = true;
    for (const Json& plain : {usual, turns}) {
      const auto text = chat.render(plain, nullptr);
      takes = takes && text && lost(plain, *text).empty();
    }
    if (!takes) continue;
    ++n_templates;
    const auto text = chat.render(agents, nullptr);
    if (!text) {
      ADD_FAILURE() << file.path().filename() << ": " << text.error().message;
    } else
      EXPECT_EQ(lost(agents, *text), "") << file.path().filename() << ": " << *text;
  }
  std::cout << n_templates << " templates\n";
  EXPECT_GT(n_templates, 50);
}

}  // namespace
}  // namespace penstock
