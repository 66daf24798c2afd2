#include "base/json_text.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock {
namespace {

using nlohmann::json;

std::string nested(int n, const char* open, const char* close) {
  std::string text;
  for (int i = 0; i < n; ++i) text += open;
  text += "1";
  for (int i = 0; i < n; ++i) text += close;
  return text;
}

TEST(JsonText, ReadsWhatIsJson) {
  EXPECT_EQ(bounded_json(R"({"a": [1, {"b": "]]]{{{\"["}]})")["a"][1]["b"], "]]]{{{\"[");
  EXPECT_TRUE(bounded_json("{").is_discarded());
  EXPECT_TRUE(bounded_json("").is_discarded());
  EXPECT_EQ(bounded_json<nlohmann::ordered_json>(R"({"b": 1, "a": 2})").begin().key(), "b");
}

TEST(JsonText, NestingIsBounded) {
  EXPECT_FALSE(bounded_json(nested(kMaxJsonNesting, "[", "]")).is_discarded());
  EXPECT_TRUE(bounded_json(nested(kMaxJsonNesting + 1, "[", "]")).is_discarded());
  EXPECT_TRUE(bounded_json(nested(kMaxJsonNesting + 1, R"({"a":)", "}")).is_discarded());
  for (const int n : {100'000, 1'000'000}) {
    EXPECT_TRUE(bounded_json(nested(n, "[", "]")).is_discarded());
    EXPECT_TRUE(bounded_json(nested(n, R"({"a":)", "}")).is_discarded());
    EXPECT_TRUE(bounded_json(nested(n, "[", "")).is_discarded());
  }
}

TEST(JsonText, TellsWhatIsWrongAndWhere) {
  const auto deep = read_bounded_json(nested(300, "[", "]"), ErrorCode::kCorruptFile, "a file");
  EXPECT_EQ(deep.error().message, "a file: nested deeper than 256");
  EXPECT_EQ(deep.error().code, ErrorCode::kCorruptFile);
  const auto broken = read_bounded_json("{\"a\": }", ErrorCode::kInvalidArgument, "a file");
  EXPECT_TRUE(broken.error().message.starts_with("a file: ")) << broken.error().message;
  EXPECT_EQ(broken.error().code, ErrorCode::kInvalidArgument);
}

// What stands in a comment opens and closes nothing, and a quote in it hides nothing behind it.
TEST(JsonText, CommentsCountForNothing) {
  const auto read = [](const std::string& text) {
    return read_bounded_json(text, ErrorCode::kCorruptFile, "x", kMaxJsonNesting, true);
  };
  EXPECT_EQ(read("[1, // one \" [[[\n 2 /* \"{ */]").value(), json({1, 2}));
  EXPECT_FALSE(read("/* \" */ " + nested(100'000, "[", "]")));
  EXPECT_FALSE(read("// \"\n" + nested(100'000, "[", "]")));
  EXPECT_FALSE(read("/*/ \" */" + nested(100'000, "[", "]")));
}

}  // namespace
}  // namespace penstock
