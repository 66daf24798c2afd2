#include "server/batches/batch_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/result.h"

namespace penstock {
namespace {

using testing::HasSubstr;

constexpr const char* kEndpoint = "/v1/completions";

std::string batch_line(const std::string& custom_id) {
  return fmt::format(
      R"({{"custom_id": "{}", "method": "POST", "url": "{}", "body": {{"prompt": "x"}}}})",
      custom_id, kEndpoint);
}

TEST(ReadBatch, LinesMayEndInAnyWay) {
  for (const char* end : {"\n", "\r\n", " \n\n\n"}) {
    std::vector<BatchMistake> mistakes;
    const auto lines = read_batch(batch_line("a") + end + batch_line("b"), kEndpoint, mistakes);
    ASSERT_TRUE(mistakes.empty()) << mistakes.front().message;
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[1].custom_id, "b");
    EXPECT_EQ(lines[1].body, R"({"prompt":"x"})");
  }
}

TEST(ReadBatch, MistakesAreBounded) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "[\n";
  std::vector<BatchMistake> mistakes;
  EXPECT_TRUE(read_batch(text, kEndpoint, mistakes).empty());
  EXPECT_EQ(mistakes.size(), 100u);
  EXPECT_EQ(mistakes.back().line, 100);
}

TEST(ReadBatch, SoManyLines) {
  std::string text;
  for (int64_t i = 0; i <= kMostBatchLines; ++i) text += batch_line(std::to_string(i)) + "\n";
  std::vector<BatchMistake> mistakes;
  EXPECT_TRUE(read_batch(text, kEndpoint, mistakes).empty());
  ASSERT_EQ(mistakes.size(), 1u);
  EXPECT_THAT(mistakes[0].message, HasSubstr("at most 50000"));
}

TEST(ReadBatch, NothingIsGuessed) {
  for (const char* text :
       {"", "\n", "null", "5", "\"\"", "{}", "[[[[", "\xff\xfe", "{\"custom_id\": 5}",
        "{\"custom_id\": \"a\"}",
        R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": [1]})",
        R"({"custom_id": "a", "method": "post", "url": "/v1/completions", "body": {}})"}) {
    std::vector<BatchMistake> mistakes;
    EXPECT_TRUE(read_batch(text, kEndpoint, mistakes).empty()) << text;
    EXPECT_EQ(mistakes.size(), 1u) << text;
  }
}

}  // namespace
}  // namespace penstock
