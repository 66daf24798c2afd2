#include "server/http/multipart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

constexpr const char* kForm = "multipart/form-data; boundary=XX";

std::string field(const std::string& head, const std::string& content) {
  return "--XX\r\nContent-Disposition: form-data; " + head + "\r\n\r\n" + content + "\r\n";
}

TEST(Multipart, FieldsAndFiles) {
  const std::string content("a\r\n--X\0\r\n", 9);
  const std::string body =
      field("name=\"purpose\"", "batch") +
      field("name=file; filename=\"in \\\"x\\\";.jsonl\"\r\ncontent-type: text/plain", content) +
      "--XX--\r\n";
  for (const char* type : {kForm, "Multipart/Form-Data; charset=utf-8; boundary=\"XX\""}) {
    for (const std::string& before : {std::string(), std::string("a preamble\r\n")}) {
      const std::string whole = before + body;
      const auto parts = read_form(type, whole);
      ASSERT_TRUE(parts) << parts.error().message;
      ASSERT_EQ(parts->size(), 2);
      EXPECT_EQ(parts->at(0).name, "purpose");
      EXPECT_EQ(parts->at(0).content, "batch");
      EXPECT_FALSE(parts->at(0).is_file);
      EXPECT_EQ(parts->at(1).name, "file");
      EXPECT_EQ(parts->at(1).filename, "in \"x\";.jsonl");
      EXPECT_TRUE(parts->at(1).is_file);
      EXPECT_EQ(parts->at(1).content, content);
    }
  }
}

TEST(Multipart, EmptyContentsAndForms) {
  const auto parts = read_form(kForm, field("name=\"a\"", "") + "--XX--");
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->at(0).content, "");
  EXPECT_TRUE(read_form(kForm, "--XX--")->empty());
}

TEST(Multipart, WhatIsNotAFormIsRefused) {
  const std::string whole = field("name=\"a\"", "text") + "--XX--\r\n";
  EXPECT_TRUE(read_form(kForm, whole));
  for (const char* type : {"", "application/json", "multipart/form-data",
                           "multipart/form-data; boundary=", "multipart/form-data; x"}) {
    EXPECT_EQ(read_form(type, whole).error().code, ErrorCode::kInvalidArgument) << type;
  }
  // Cut anywhere it is an error or, behind the last boundary, whole; never a part that is shorter
  // than it was.
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto parts = read_form(kForm, whole.substr(0, size));
    EXPECT_EQ(parts.has_value(), size >= whole.size() - 2) << size;
  }
  EXPECT_FALSE(read_form(kForm, field("filename=\"a\"", "x") + "--XX--"));
  EXPECT_FALSE(read_form(kForm, "--XX\r\n\r\nx\r\n--XX--"));
  std::string many;
  for (int i = 0; i < 33; ++i) many += field("name=\"a\"", "x");
  EXPECT_FALSE(read_form(kForm, many + "--XX--"));
  EXPECT_FALSE(read_form(kForm, field("name=\"" + std::string(5000, 'a') + "\"", "x") + "--XX--"));
}

}  // namespace
}  // namespace penstock
