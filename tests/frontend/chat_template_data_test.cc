// Every real chat template against what real Jinja2 rendered, byte for byte.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "frontend/chat/chat_template.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

RenderOptions golden_clock() {
  RenderOptions options;
  options.now = std::tm{};
  options.now->tm_year = 126;
  options.now->tm_mon = 0;
  options.now->tm_mday = 2;
  options.now->tm_hour = 3;
  options.now->tm_min = 4;
  options.now->tm_sec = 5;
  options.now->tm_wday = 5;
  options.now->tm_yday = 1;
  return options;
}

TEST(ChatTemplateData, GoldenRenderings) {
  REQUIRE_TEST_DATA("templates/golden.jsonl");
  const auto folder = test_data_dir() / "templates";
  std::map<std::string, ChatTemplate> templates;
  std::ifstream rows(folder / "golden.jsonl");
  int n_equal = 0, n_refused = 0, n_same_message = 0;
  for (std::string line; std::getline(rows, line);) {
    Json row = Json::parse(line);
    const std::string name = row["template"];
    const std::string where = name + " / " + row["case"].get<std::string>();
    auto it = templates.find(name);
    if (it == templates.end()) {
      auto parsed = ChatTemplate::parse(read(folder / "jinja" / name));
      ASSERT_TRUE(parsed) << where << ": " << parsed.error().message;
      it = templates.emplace(name, std::move(*parsed)).first;
    }
    const bool refused = row.contains("error");
    const std::string expected = refused ? row["error"] : row["expected"];
    for (const char* key : {"template", "case", "error", "expected"}) row.erase(key);
    const auto rendered = it->second.render(row, golden_clock());
    if (refused) {
      EXPECT_FALSE(rendered) << where << ": expected the refusal " << expected;
      if (rendered) continue;
      ++n_refused;
      const std::string_view message =
          std::string_view(expected).substr(expected.starts_with("TemplateError: ") ? 15 : 0);
      const bool same = std::string_view(rendered.error().message).ends_with(message);
      n_same_message += same ? 1 : 0;
      EXPECT_TRUE(same) << where << ": " << rendered.error().message << "\nexpected " << expected;
    } else if (!rendered) {
      ADD_FAILURE() << where << ": " << rendered.error().message;
    } else {
      EXPECT_EQ(*rendered, expected) << where;
      n_equal += *rendered == expected ? 1 : 0;
    }
  }
  std::cout << templates.size() << " templates, " << n_equal << " renderings equal, " << n_refused
            << " refused as jinja2 does, " << n_same_message << " with its message\n";
  EXPECT_GT(n_equal + n_refused, 900);
}

}  // namespace
}  // namespace penstock
