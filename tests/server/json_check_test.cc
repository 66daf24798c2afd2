#include "server/api/json_check.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace penstock {
namespace {

using nlohmann::json;

// The message of the first mismatch, empty when the value fits.
std::string mismatch(const char* schema, const char* value) {
  const Status status = check_json(json::parse(schema), nlohmann::ordered_json::parse(value));
  return status ? "" : status.error().message;
}

TEST(JsonCheck, Types) {
  const char* schema =
      R"({"type": "object", "properties": {"a": {"type": ["integer", "null"]}, "b": {"type": "number"}}})";
  EXPECT_EQ(mismatch(schema, R"({})"), "");
  EXPECT_EQ(mismatch(schema, R"({"a": null, "b": 1})"), "");
  EXPECT_EQ(mismatch(schema, R"({"a": 3.0, "b": 1.5})"),
            "");  // a whole number is an integer however it is written
  EXPECT_EQ(mismatch(schema, R"({"a": 3.5})"), "a: expected an integer, got 3.5");
  EXPECT_EQ(mismatch(schema, R"({"a": true})"), "a: expected an integer, got true");
  EXPECT_EQ(mismatch(schema, R"({"b": null})"), "b: expected a number, got null");
  EXPECT_EQ(mismatch(schema, R"([])"), "body: expected an object, got []");
}

TEST(JsonCheck, Ranges) {
  EXPECT_EQ(mismatch(R"({"minimum": 0, "maximum": 1})", "0"), "");
  EXPECT_EQ(mismatch(R"({"minimum": 0, "maximum": 1})", "1"), "");
  EXPECT_EQ(mismatch(R"({"minimum": 0, "maximum": 1})", "1.001"),
            "body: expected a number <= 1, got 1.001");
  EXPECT_EQ(mismatch(R"({"minimum": 0})", "-1e300"), "body: expected a number >= 0, got -1e+300");
  EXPECT_EQ(mismatch(R"({"exclusiveMinimum": 0})", "0"), "body: expected a number > 0, got 0");
  EXPECT_EQ(mismatch(R"({"maximum": 9})", "18446744073709551615"),
            "body: expected a number <= 9, got 18446744073709551615");
}

TEST(JsonCheck, ListsAndTheirPlaces) {
  const char* schema =
      R"({"type": "object", "properties": {"m": {"type": "array", "minItems": 1, "maxItems": 2,
      "items": {"type": "object", "required": ["role"], "properties": {"role": {"type": "string", "minLength": 1}}}}}})";
  EXPECT_EQ(mismatch(schema, R"({"m": [{"role": "x"}]})"), "");
  EXPECT_EQ(mismatch(schema, R"({"m": []})"), "m: expected at least 1 items, got 0");
  EXPECT_EQ(mismatch(schema, R"({"m": [{"role": "x"}, {"role": "x"}, {}]})"),
            "m: expected at most 2 items, got 3");
  EXPECT_EQ(mismatch(schema, R"({"m": [{"role": "x"}, {}]})"), "m[1].role: missing");
  EXPECT_EQ(mismatch(schema, R"({"m": [{"role": 5}]})"), "m[0].role: expected a string, got 5");
  EXPECT_EQ(mismatch(schema, R"({"m": [{"role": ""}]})"),
            "m[0].role: expected a string that is not empty, got \"\"");
}

TEST(JsonCheck, UnknownFields) {
  const char* closed =
      R"({"type": "object", "properties": {"a": {}}, "additionalProperties": false})";
  EXPECT_EQ(mismatch(closed, R"({"a": [1]})"), "");
  EXPECT_EQ(mismatch(closed, R"({"b": null})"), "b: this server knows no such field");
  EXPECT_EQ(mismatch(R"({"type": "object"})", R"({"b": 1})"), "");
  EXPECT_EQ(mismatch(R"({"additionalProperties": {"type": "number"}})", R"({"b": "1"})"),
            "b: expected a number, got \"1\"");
}

TEST(JsonCheck, WhatAnObjectIsComesBeforeItsOtherFields) {
  const char* schema =
      R"({"type": "object", "properties": {"name": {"type": "string"}, "type": {"enum": ["a"]}},
                           "required": ["type", "name"], "additionalProperties": false})";
  EXPECT_EQ(mismatch(schema, R"({"type": "a", "name": "n"})"), "");
  EXPECT_EQ(mismatch(schema, R"({"type": "b"})"), "type: expected \"a\", got \"b\"");
  EXPECT_EQ(mismatch(schema, R"({"type": "b", "extra": 1})"), "type: expected \"a\", got \"b\"");
  EXPECT_EQ(mismatch(schema, R"({"type": "a", "extra": 1})"), "name: missing");
}

TEST(JsonCheck, LengthsAreCountedInCharacters) {
  EXPECT_EQ(mismatch(R"({"maxLength": 3})", "\"\u20ac\u20ac\u20ac\""), "");
  EXPECT_EQ(mismatch(R"({"maxLength": 3})", "\"abcd\""),
            "body: expected at most 3 characters, got 4");
  EXPECT_EQ(mismatch(R"({"minLength": 1})", "\"\""),
            "body: expected a string that is not empty, got \"\"");
}

TEST(JsonCheck, RefusedFieldsSayWhy) {
  const char* schema =
      R"({"properties": {"suffix": {"type": "null", "description": "not supported"},
      "store": {"enum": [false, null]}}})";
  EXPECT_EQ(mismatch(schema, R"({"suffix": null, "store": false})"), "");
  EXPECT_EQ(mismatch(schema, R"({"suffix": "x"})"), "suffix: not supported");
  EXPECT_EQ(mismatch(schema, R"({"store": true})"), "store: expected false, got true");
}

TEST(JsonCheck, Alternatives) {
  const char* schema =
      R"({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer", "minimum": 0},
      "title": "a list of token ids"}]})";
  EXPECT_EQ(mismatch(schema, R"("x")"), "");
  EXPECT_EQ(mismatch(schema, R"([1, 2])"), "");
  EXPECT_EQ(mismatch(schema, R"([1, -2])"), "[1]: expected a number >= 0, got -2");
  EXPECT_EQ(mismatch(schema, R"(true)"),
            "body: expected a string or a list of token ids, got true");
}

TEST(JsonCheck, AnObjectIsTheAlternativeOfItsTypeAndFields) {
  const char* schema = R"({"properties": {"form": {"anyOf": [
      {"type": "object", "properties": {"type": {"enum": ["text"]}}, "additionalProperties": false, "required": ["type"]},
      {"type": "object", "properties": {"type": {"enum": ["regex"]}, "regex": {"type": "object", "required": ["pattern"]}},
       "additionalProperties": false, "required": ["type", "regex"]},
      {"type": "object", "properties": {"type": {"enum": ["regex"]}, "pattern": {"type": "string"}},
       "additionalProperties": false, "required": ["type", "pattern"]}]}}})";
  EXPECT_EQ(mismatch(schema, R"({"form": {"type": "regex", "regex": {"pattern": "a"}}})"), "");
  EXPECT_EQ(mismatch(schema, R"({"form": {"type": "regex", "regex": {}}})"),
            "form.regex.pattern: missing");
  EXPECT_EQ(mismatch(schema, R"({"form": {"type": "regex", "pattern": 1}})"),
            "form.pattern: expected a string, got 1");
  EXPECT_EQ(mismatch(schema, R"({"form": {"type": "text", "text": 1}})"),
            "form.text: this server knows no such field");
  EXPECT_EQ(mismatch(schema, R"({"form": {"type": "regex"}})"), "form.regex: missing");
  EXPECT_EQ(mismatch(schema, R"({"form": {"type": "rgx"}})"),
            R"(form.type: expected "text" or "regex", got "rgx")");
  EXPECT_EQ(mismatch(schema, R"({"form": {}})"), "form.type: missing");
}

TEST(JsonCheck, LongValuesAreCutBetweenCharacters) {
  std::string value = "\"";
  for (int i = 0; i < 100; ++i) value += "\xe2\x82\xac";
  const std::string message = mismatch(R"({"type": "integer"})", (value + "\"").c_str());
  EXPECT_LT(message.size(), 120u);
  EXPECT_NO_THROW(json(message).dump());  // whole UTF-8
}

constexpr const char* kLenient =
    R"({"type": "object", "additionalProperties": false, "properties": {
    "temperature": {"type": "number"}, "top_k": {"type": "integer"}, "max_tokens": {"type": "integer"},
    "tool": {"anyOf": [
        {"type": "object", "additionalProperties": false, "required": ["a"], "properties": {"a": {}}},
        {"type": "object", "additionalProperties": false, "required": ["b"],
         "properties": {"b": {}, "c": {}}}]},
    "list": {"type": "array", "items": {"type": "object", "additionalProperties": false,
             "properties": {"name": {"type": "string"}}}}}})";

TEST(JsonCheck, UnlistedFieldsAreTakenOut) {
  auto value =
      nlohmann::ordered_json::parse(R"({"colour": {"temprature": 1}, "top_k": 1, "top_a": 0.2,
      "list": [{"name": "x"}, {"size": 3, "name": "y", "kind": null}], "tool": {"b": 1, "d": 2}})");
  std::vector<std::string> unlisted;
  const Status status = check_listed(json::parse(kLenient), value, unlisted);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(unlisted, (std::vector<std::string>{"colour", "top_a", "list[1].size", "list[1].kind",
                                                "tool.d"}));
  EXPECT_EQ(value.dump(), R"({"top_k":1,"list":[{"name":"x"},{"name":"y"}],"tool":{"b":1}})");
}

TEST(JsonCheck, AnAlternativeThatListsAllFieldsComesFirst) {
  auto value = nlohmann::ordered_json::parse(R"({"tool": {"a": 1, "b": 2, "c": 3}})");
  std::vector<std::string> unlisted;
  ASSERT_TRUE(check_listed(json::parse(kLenient), value, unlisted));
  EXPECT_EQ(value.dump(), R"({"tool":{"a":1}})");  // none does: the first
  value = nlohmann::ordered_json::parse(R"({"tool": {"b": 2, "c": 3}})");
  ASSERT_TRUE(check_listed(json::parse(kLenient), value, unlisted));
  EXPECT_TRUE(unlisted.empty());
}

TEST(JsonCheck, MisspeltFieldsAreRefused) {
  const json schema = json::parse(kLenient);
  const auto error = [&](const char* name) {
    nlohmann::ordered_json value = {{name, 1}};
    std::vector<std::string> unlisted;
    const Status status = check_listed(schema, value, unlisted);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(error("temprature"),
            "temprature: this server knows no such field; did you mean temperature?");
  for (const char* name : {"temperatrue", "Temperature", "maxTokens", "max-tokens", "topK",
                           "max_token", "max_tokenss", "tempertaure"})
    EXPECT_NE(error(name), "") << name;
  for (const char* name : {"top_a", "top_n", "min_p", "tools", "names", "max_new_tokens", "",
                           "temperature_of_the_room"})
    EXPECT_EQ(error(name), "") << name;
}

TEST(JsonCheck, TooManyUnlistedFieldsAreRefused) {
  nlohmann::ordered_json value = nlohmann::ordered_json::object();
  for (size_t i = 0; i < kMostUnlisted; ++i) value["x" + std::to_string(i)] = 1;
  nlohmann::ordered_json more = value;
  more["y"] = 1;
  std::vector<std::string> unlisted;
  ASSERT_TRUE(check_listed(json::parse(kLenient), value, unlisted));
  EXPECT_EQ(unlisted.size(), kMostUnlisted);
  EXPECT_TRUE(value.empty());
  EXPECT_FALSE(check_listed(json::parse(kLenient), more, unlisted));
}

}  // namespace
}  // namespace penstock
