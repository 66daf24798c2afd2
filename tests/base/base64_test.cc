#include "base/base64.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Base64, AsClientsWriteIt) {
  EXPECT_EQ(decode_base64("aGVsbG8=", Base64::kLoose).value(), "hello");
  EXPECT_EQ(decode_base64("aGVs\r\nbG8", Base64::kLoose).value(), "hello");
  EXPECT_EQ(decode_base64("-_8=", Base64::kLoose).value(),
            decode_base64("+/8=", Base64::kLoose).value());
  EXPECT_EQ(decode_base64("", Base64::kLoose).value(), "");
  EXPECT_FALSE(decode_base64("a", Base64::kLoose));
  EXPECT_FALSE(decode_base64("aG=s", Base64::kLoose));
}

TEST(Base64, Encodes) {
  EXPECT_EQ(encode_base64(""), "");
  EXPECT_EQ(encode_base64("hello"), "aGVsbG8=");
  EXPECT_EQ(encode_base64("hell"), "aGVsbA==");
  EXPECT_EQ(encode_base64("\xfb\xff\xfe"), "+//+");
  std::string all;
  for (int i = 0; i < 1000; ++i) all += static_cast<char>(i * 7);
  EXPECT_EQ(decode_base64(encode_base64(all), Base64::kPlain).value(), all);
}

TEST(Base64, Plain) {
  EXPECT_EQ(decode_base64("aGVsbG8=", Base64::kPlain).value(), "hello");
  EXPECT_EQ(decode_base64("aGV\nsbG8=", Base64::kPlain).error(), 3u);
  EXPECT_EQ(decode_base64("-_8=", Base64::kPlain).error(), 0u);
}

}  // namespace
}  // namespace penstock
