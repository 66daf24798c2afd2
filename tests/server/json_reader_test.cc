#include "server/api/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace penstock {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr size_t kAllowance = 8 << 20;

Result<ordered_json> read(std::string_view text) { return read_json(text, kAllowance); }

std::string error_of(std::string_view text) {
  const auto value = read(text);
  return value ? "read: " + value->dump() : value.error().message;
}

TEST(JsonReader, ReadsWhatNlohmannReads) {
  for (const char* text : {"{}",
                           "[]",
                           "null",
                           "true",
                           "0",
                           "-0",
                           "-1",
                           "18446744073709551615",
                           "-9223372036854775808",
                           "0.1",
                           "1e-3",
                           "123456789.123456789",
                           "1.7976931348623157e308",
                           "5e-324",
                           "1e-400",
                           "2.2250738585072014e-308",
                           "\"\"",
                           R"("plain")",
                           R"("\"\\\/\b\f\n\r\t\u00e4\u20ac\ud83d\udc4b")",
                           "\"\u00e4\u20ac\U0001f44b\"",
                           " [ 1 , 2 ] ",
                           R"({"b": 1, "a": [true, false, null, {"x": {}}], "c": "text"})",
                           R"([[], {}, [[]], ""])",
                           R"({"": 1, "a": {"": 2}})",
                           "[0.30000000000000004, 1E5, 100000000000000000000]"}) {
    const auto value = read(text);
    ASSERT_TRUE(value) << text << ": " << value.error().message;
    EXPECT_EQ(value->dump(), ordered_json::parse(text).dump()) << text;
  }
}

TEST(JsonReader, OfEqualNamesTheLastValueCounts) {
  EXPECT_EQ(read(R"({"a": 1, "b": 2, "a": 3, "c": {"x": 1, "x": [2]}, "a": 4})")->dump(),
            R"({"a":4,"b":2,"c":{"x":[2]}})");
}

TEST(JsonReader, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(
      error_of(R"({"prompt": tru})"),
      R"(body: not valid JSON at byte 11: a character that is not expected there, near "{\"prompt\": tru}")");
  EXPECT_THAT(error_of(R"({"a": "\ud800"})"), HasSubstr("lone surrogate"));
  EXPECT_THAT(error_of(R"({"a": "\ud800x"})"), HasSubstr("lone surrogate"));
  EXPECT_THAT(error_of(R"({"a": "\udc00"})"), HasSubstr("lone surrogate"));
  EXPECT_THAT(error_of(R"({"a": "\u12"})"), HasSubstr("hexadecimal"));
  EXPECT_THAT(error_of(R"({"a": 1e309})"), HasSubstr("the number 1e309 is out of range"));
  EXPECT_THAT(error_of(R"({"a": -1e999999999999})"), HasSubstr("out of range"));
  EXPECT_THAT(error_of(R"({"a": 1)"), HasSubstr("byte 7: it ends too early"));
  EXPECT_THAT(error_of(R"({"a": "x)"), HasSubstr("it ends too early"));
  EXPECT_THAT(error_of("{} x"), HasSubstr("byte 3: something follows its end"));
  EXPECT_THAT(error_of(""), HasSubstr("got nothing"));
  EXPECT_THAT(error_of("{\"a\": \"\xff\"}"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(error_of("{\"a\": \"\x01\"}"), HasSubstr("not valid JSON at byte"));
  for (const char* text : {"{", "[1,]", "{\"a\" 1}", "NaN", "Infinity", "'a'", "// c\n1", "01",
                           "1.", ".5", "+1", "[1 2]", "\xef\xbb\xbf{}", "{\"a\":1,}", "\"\\x\""})
    EXPECT_THAT(error_of(text), HasSubstr("not valid JSON")) << text;
}

TEST(JsonReader, DepthIsBounded) {
  const std::string deep = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
  EXPECT_TRUE(read(deep));
  EXPECT_THAT(error_of("[" + deep + "]"), HasSubstr("nested more than 64 levels deep"));
  EXPECT_THAT(error_of(std::string(10'000'000, '[')), HasSubstr("nested"));
}

size_t allocated() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// What is counted is no less than what the value takes: the longest list of each shape that is
// read.
TEST(JsonReader, WhatIsCountedHoldsForSmallValues) {
  constexpr size_t kLittle = 1 << 18;
  for (const char* element :
       {"[]", "[0]", "[[[]]]", "{}", R"({"a":1})", R"({"text":"x"})", R"({"a":{}})",
        R"({"a":[{"b":""}]})", R"({"a":1,"b":2,"c":3})", R"({"a":1,"b":2,"c":3,"d":4,"e":5})",
        R"({"a name of sixteen":"a text of sixteen"})", R"("")", R"("a text of sixteen")"}) {
    const auto list = [&](size_t n) {
      std::string text = "[";
      for (size_t i = 0; i < n; ++i) text.append(element).append(i + 1 < n ? "," : "");
      return text + "]";
    };
    size_t most = 1;
    for (size_t step = 1 << 13; step > 0; step /= 2)
      if (read_json(list(most + step), kLittle)) most += step;
    ASSERT_LT(most, 1 << 13) << element;
    const std::string text = list(most);
    const size_t before = allocated();
    const auto value = read_json(text, kLittle);
    const size_t taken = allocated() - before;
    ASSERT_TRUE(value) << element;
    EXPECT_LT(taken, kLittle + 2 * text.size()) << element << " " << most << " times";
  }
}

// Of texts as large as a body may be: what they take, and how long.
TEST(JsonReader, MemoryAndTimeAreBoundedForEveryShape) {
  constexpr size_t kSize = 32 << 20;
  const auto repeated = [](std::string_view piece, std::string_view before,
                           std::string_view after) {
    std::string text(before);
    while (text.size() < kSize - 100) text += piece;
    text.resize(text.size() - 1);  // the last comma
    return text.append(after);
  };
  std::string names = "{";
  for (int i = 0; names.size() < kSize - 100; ++i) names += "\"" + std::to_string(i) + "\":1,";
  names.back() = '}';
  const std::string texts[] = {repeated("[],", R"({"prompt":[)", "]}"),
                               repeated("{},", R"({"messages":[)", "]}"),
                               repeated("\"a\",", R"({"stop":[)", "]}"),
                               repeated("1,", R"({"tokens":[)", "]}"),
                               repeated("\"a\":1,", "{", "}"),
                               repeated("[[[]]],", "[", "]"),
                               repeated("{\"a\":{}},", "[", "]"),
                               repeated("12345,", "[", "]"),
                               names,
                               repeated("x,", R"({"prompt":")", "\"}"),
                               repeated("\\n,", R"({"prompt":")", "\"}"),
                               repeated("x,", R"({"prompt":")", "")};
  for (const std::string& text : texts) {
    const size_t before = allocated();
    const auto start = std::chrono::steady_clock::now();
    const auto value = read(text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const size_t taken = allocated() - before;
    EXPECT_LT(taken, 3 * kSize) << text.substr(0, 30);
    EXPECT_LT(seconds.count(), 10) << text.substr(0, 30);
    if (!value) {
      EXPECT_LT(value.error().message.size(), 300);
    }
  }
}

}  // namespace
}  // namespace penstock
