// Every template of the data folder ends what the assistant says with the token that its model ends
// it with.
#include <gmock/gmock.h>

#include "turn_ends_under_test.h"

namespace penstock::turn_ends_data_test {
namespace {

TEST(TurnEndsData, EveryTemplate) {
  REQUIRE_TEST_DATA("templates/jinja");
  std::ifstream golden(tests_dir() / "golden" / "turn_ends.json");
  const nlohmann::json wanted = nlohmann::json::parse(golden);
  nlohmann::json found = nlohmann::json::object();
  for (const auto& entry :
       std::filesystem::directory_iterator(test_data_dir() / "templates" / "jinja")) {
    std::ifstream file(entry.path());
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    std::set<std::string> special = marks_of(source), other;
    special.insert({"<s>", "</s>"});
    std::erase_if(special, [&](const std::string& mark) {
      const bool text =
          mark.find("think>") != std::string::npos || mark.find("tool_call>") != std::string::npos;
      if (text) other.insert(mark);
      return text;
    });
    TokenizerFiles files;
    files.tokenizer_config_json = R"({"bos_token": "<s>", "eos_token": "</s>"})";
    const auto tokenizer = tokenizer_with(source, special, other, files);
    found[entry.path().filename()] = names_of(*tokenizer, turn_ends(*tokenizer));
  }
  for (const auto& [name, ends] : wanted.items())
    EXPECT_EQ(found.value(name, nlohmann::json()), ends) << name;
  EXPECT_EQ(found.size(), wanted.size()) << found.dump(1);
}

}  // namespace
}  // namespace penstock::turn_ends_data_test
