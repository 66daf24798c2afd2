#include "server/api/custom_input.h"

#include <gtest/gtest.h>

#include <chrono>

namespace penstock {
namespace {

struct Row {
  const char* arguments;
  const char* text;
  bool complete;
};

const Row kRows[] = {
    {R"({"input": "plain"})", "plain", true},
    {"{ \n\"input\" :\t\"x\"}", "x", true},
    {R"({"input":"a\"b\\c\/d\n\t\r\b\f"})", "a\"b\\c/d\n\t\r\b\f", true},
    {R"({"input":"\u00e9\u20ac\ud83d\ude00 é€😀"})", "é€😀 é€😀", true},
    {R"({"input":"\ud83dx\ude00\uZZZZ"})", "\uFFFDx\uFFFD\uFFFDZZZZ", true},
    // broken right before the quote behind the text
    {R"({"input":"a\u"})", "a\uFFFD", true},
    {R"({"input":"a\u12"})", "a\uFFFD", true},
    {R"({"input":"a\u12" , "more": "text"})", "a\uFFFD", true},
    {R"({"input":"\ud83d\u12"})", "\uFFFD\uFFFD", true},
    {R"({"input":"\ud83d\u12\n"})", "\uFFFD\uFFFD\n", true},
    {R"({"input":"\ud83d\u12\ude00"})", "\uFFFD\uFFFD\uFFFD", true},
    {R"({"input":""})", "", true},
    // cut
    {R"({"input":"begun)", "begun", false},
    {R"({"input":"begun\)", "begun", false},
    {R"({"input":"begun\u00e)", "begun", false},
    {R"({"input":"begun\ud83d)", "begun", false},
    {R"({"input":"begun\ud83d\)", "begun", false},
    {R"({"input":"begun\ud83d\u)", "begun", false},
    {R"({"inp)", "", false},
    {"", "", false},
    // not as they should be
    {R"({"note": 1, "input": "found"})", "found", true},
    {R"({"input": 5})", R"({"input": 5})", true},
    {R"(ls -l "x")", R"(ls -l "x")", false},
    {R"({"inputs": "x"})", R"({"inputs": "x"})", true},
};

TEST(CustomInput, TheTextOfTheArguments) {
  for (const Row& row : kRows) {
    CustomInput input;
    EXPECT_EQ(input.add(row.arguments, true), row.text) << row.arguments;
    EXPECT_EQ(input.complete(), row.complete) << row.arguments;
  }
}

TEST(CustomInput, IsTheSameHoweverTheyAreCut) {
  for (const Row& row : kRows) {
    const std::string_view all = row.arguments;
    for (size_t i = 0; i <= all.size(); ++i) {
      for (size_t j = i; j <= all.size(); ++j) {
        CustomInput input;
        std::string text = input.add(all.substr(0, i), false);
        text += input.add(all.substr(i, j - i), false);
        text += input.add(all.substr(j), true);
        ASSERT_EQ(text, row.text) << all << " cut at " << i << " and " << j;
        ASSERT_EQ(input.complete(), row.complete) << all << " cut at " << i << " and " << j;
      }
    }
  }
}

// Each piece is read once: rereading those before it takes minutes.
TEST(CustomInput, ManyPiecesOfWhiteSpace) {
  CustomInput input;
  const auto start = std::chrono::steady_clock::now();
  for (const char* part : {"{", "\"input\"", ":"}) {
    input.add(part, false);
    for (int i = 0; i < 300'000; ++i) input.add(" ", false);
  }
  EXPECT_EQ(input.add("\"x\"}", true), "x");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace penstock
